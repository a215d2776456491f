//! What a run leaves, what a kill leaves, and what hostile files cannot do.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::write::Frames;
use super::*;
use crate::observe::{Flag, Mark, Record, Status, TokenSource};
use crate::report::{Style, example, table};
use crate::sample::{AskId, ClassId, LevelId, Pacing, Sample};

fn run_line() -> RunLine {
    RunLine {
        schema: REQUESTS_SCHEMA.to_owned(),
        fulcrum: "0.1.0".to_owned(),
        started: "2026-12-01T04:24:08Z".to_owned(),
        command: vec!["fulcrum".to_owned(), "bench".to_owned()],
        endpoint: "http://127.0.0.1:8080".to_owned(),
        model: None,
        api: "chat".to_owned(),
        workload: "mixed".to_owned(),
        workload_hash: "9f86d081884c7d65".to_owned(),
        seed: 1,
        classes: vec!["interactive".to_owned(), "batch".to_owned()],
    }
}

fn level_line() -> LevelLine {
    LevelLine {
        level: LevelId(0),
        users: Some(8),
        offered_rps: None,
        start_s: 0.25,
    }
}

fn sample(number: u64) -> Sample {
    let at = |idx: u64| Duration::from_micros(200_000 + 20_123 * idx);
    Sample {
        id: AskId {
            conversation: number,
            turn: 1,
        },
        level: LevelId(0),
        class: ClassId(1),
        pacing: Pacing::Open,
        due: 1.0 + number as f64,
        sent: 1.012_345 + number as f64,
        held: 0.0,
        handed: 1.012_345 + number as f64,
        told: 1.012_345 + number as f64,
        connect: (number.is_multiple_of(2)).then_some(0.000_4),
        num_prompt_wanted: Some(160),
        num_prompt_shared: 40,
        num_output_wanted: Some(30),
        output: crate::workload::OutputLength::Exact,
        record: Record {
            status: Status::Ok,
            http_status: Some(200),
            first_token: Some(at(0)),
            first_answer: Some(at(2)),
            last_token: Some(at(29)),
            marks: (0..30)
                .map(|idx| Mark {
                    at: at(idx),
                    num_tokens: (number.is_multiple_of(3)).then_some(1),
                })
                .collect(),
            num_tokens: Some(30),
            token_source: TokenSource::Usage,
            num_reasoning_tokens: Some(2),
            num_prompt_tokens: Some(161),
            num_cached_tokens: Some(32),
            queue: Some(Duration::from_micros(1_500)),
            ended: at(30),
            finish_reason: Some("length".to_owned()),
            flags: vec![Flag::MissingDone],
            ..Record::default()
        },
    }
}

fn written(parent: &Path, num_requests: u64) -> PathBuf {
    let mut writer = RunWriter::create(&parent.join("run"), &run_line()).expect("a directory");
    writer.level(&level_line()).expect("written");
    for number in 0..num_requests {
        writer.request(&sample(number)).expect("written");
        writer.tick(number as f64 * 0.1).expect("written");
    }
    writer.flush().expect("written");
    writer.directory().to_owned()
}

#[test]
fn a_run_is_read_as_it_was_written() {
    let parent = tempfile::tempdir().expect("a directory");
    let mut writer =
        RunWriter::create(&parent.path().join("run"), &run_line()).expect("a directory");
    writer.level(&level_line()).expect("written");
    writer.request(&sample(7)).expect("written");
    let directory = writer
        .finish(&example::summary(), &example::series())
        .expect("written");

    let run = read(&directory).expect("read");
    // JSON's last digit of a float may fall, so what is shown is compared.
    let (read, meant) = (run.summary.expect("it was finished"), example::summary());
    assert_eq!(table(&read, Style::Plain), table(&meant, Style::Plain));
    let series = run.series.expect("it was finished");
    assert_eq!(series.timeline.len(), example::series().timeline.len());
    assert_eq!(series.ecdf.len(), example::series().ecdf.len());
    assert_eq!(run.run, Some(run_line()));
    assert_eq!(run.levels, [level_line()]);
    assert_eq!(run.requests.len(), 1);
    assert_eq!(run.requests[0].class, "batch");
    assert_eq!(run.requests[0].ttft_ms, Some(212.345));
    assert!(run.tail.is_whole(), "{:?}", run.tail);
}

#[test]
fn a_request_read_gives_the_statistics_of_the_sample_written() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = written(parent.path(), 6);
    let requests: Vec<Request> = lines(&directory)
        .expect("read")
        .filter_map(|line| match line {
            Line::Request(request) => Some(*request),
            _ => None,
        })
        .collect();
    assert_eq!(requests.len(), 6);
    for (number, request) in requests.iter().enumerate() {
        let read = request.sample(&run_line().classes).expect("a known class");
        let (read, meant) = (read.row(), sample(number as u64).row());
        assert_eq!(
            (read.id, read.class, read.status),
            (meant.id, meant.class, meant.status)
        );
        assert_eq!(read.num_output, meant.num_output);
        assert_eq!(read.gaps.len(), meant.gaps.len());
        for (read, meant) in [
            (read.ttft, meant.ttft),
            (read.ttfo, meant.ttfo),
            (read.tpot, meant.tpot),
            (read.e2e, meant.e2e),
            (read.queue, meant.queue),
            (read.connect, meant.connect),
        ] {
            let (read, meant) = (read.unwrap_or(-1.0), meant.unwrap_or(-1.0));
            assert!((read - meant).abs() < 3e-6, "{read} for {meant}");
        }
    }
}

#[test]
fn a_directory_that_exists_is_never_written_to() {
    let parent = tempfile::tempdir().expect("a directory");
    let wanted = parent.path().join("deep/run/");
    let names: Vec<PathBuf> = (0..3)
        .map(|_| {
            let writer = RunWriter::create(&wanted, &run_line()).expect("a directory");
            writer.directory().to_owned()
        })
        .collect();
    let deep = parent.path().join("deep");
    assert_eq!(names[1..], [deep.join("run-2"), deep.join("run-3")]);
    assert!(names.iter().all(|name| name.join(REQUESTS).is_file()));
}

#[test]
fn a_run_that_is_killed_leaves_what_is_older_than_a_second() {
    let parent = tempfile::tempdir().expect("a directory");
    let mut writer =
        RunWriter::create(&parent.path().join("run"), &run_line()).expect("a directory");
    for number in 0..35 {
        writer.tick(number as f64 * 0.1).expect("written");
        writer.request(&sample(number)).expect("written");
    }
    let directory = writer.directory().to_owned();
    // What a kill does: nothing of the writer runs any more.
    std::mem::forget(writer);

    let run = read(&directory).expect("read");
    assert!(run.summary.is_none());
    assert!(run.requests.len() >= 20, "{} of 35", run.requests.len());
    assert!(run.tail.is_whole());
}

#[test]
fn a_long_run_is_written_while_it_goes_on_without_any_tick() {
    let parent = tempfile::tempdir().expect("a directory");
    let mut writer =
        RunWriter::create(&parent.path().join("run"), &run_line()).expect("a directory");
    for number in 0..2_000 {
        writer.request(&sample(number)).expect("written");
    }
    let run = read(writer.directory()).expect("read");
    assert!(run.requests.len() > 1_000, "{} of 2000", run.requests.len());
}

#[test]
fn a_file_cut_anywhere_gives_its_whole_lines_and_tells_what_is_lost() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = written(parent.path(), 100);
    let path = directory.join(REQUESTS);
    let bytes = fs::read(&path).expect("there");
    let mut num_before = 0;
    for cut in (0..bytes.len()).step_by(13) {
        fs::write(&path, &bytes[..cut]).expect("written");
        let run = read(&directory).expect("a cut file is no error");
        assert!(run.requests.len() >= num_before, "{cut}");
        assert!(run.tail.lost_bytes <= cut as u64);
        for (number, request) in run.requests.iter().enumerate() {
            assert_eq!(request.id, sample(number as u64).id);
        }
        num_before = run.requests.len();
    }
    assert!(num_before >= 80);
    fs::write(&path, &bytes[..bytes.len() - 1]).expect("written");
    let tail = read(&directory).expect("read").tail;
    assert!(tail.lost_bytes > 0 && tail.because.is_some(), "{tail:?}");
}

#[test]
fn a_file_flipped_anywhere_is_read_as_far_as_it_goes() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = written(parent.path(), 30);
    let path = directory.join(REQUESTS);
    let bytes = fs::read(&path).expect("there");
    for at in (0..bytes.len()).step_by(17) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x5a;
        fs::write(&path, &flipped).expect("written");
        if let Ok(run) = read(&directory) {
            assert!(run.requests.len() <= 30);
        }
    }
}

#[test]
fn a_line_without_end_is_not_held_in_memory() {
    let parent = tempfile::tempdir().expect("a directory");
    let line = vec![b' '; LIMITS.line_bytes_max + 100];
    let packed = zstd::bulk::compress(&line, 1).expect("packed");
    assert!(packed.len() < 100_000);
    fs::write(parent.path().join(REQUESTS), packed).expect("written");
    let run = read(parent.path()).expect("read");
    let because = run.tail.because.expect("it stopped");
    assert!(because.contains("more than"), "{because}");
}

#[test]
fn lines_of_a_later_version_are_skipped_and_broken_ones_counted() {
    let parent = tempfile::tempdir().expect("a directory");
    let text = "{\"kind\":\"weather\",\"rain\":true}\nnot json\n{\"kind\":\"level\",\"level\":3,\"users\":2,\"offered_rps\":null,\"start_s\":1,\"new\":1}\n";
    let packed = zstd::bulk::compress(text.as_bytes(), 1).expect("packed");
    fs::write(parent.path().join(REQUESTS), packed).expect("written");
    let run = read(parent.path()).expect("read");
    assert_eq!(run.levels.len(), 1);
    assert_eq!(run.tail.unreadable_lines, 1);
}

#[test]
fn a_directory_of_another_schema_or_of_nothing_is_refused() {
    let parent = tempfile::tempdir().expect("a directory");
    assert!(matches!(
        read(parent.path()),
        Err(DirectoryError::NoRun { .. })
    ));
    fs::write(
        parent.path().join(SUMMARY),
        "{\"schema\":\"fulcrum.bench/2\"}",
    )
    .expect("written");
    assert!(matches!(
        read(parent.path()),
        Err(DirectoryError::Schema { .. })
    ));
    fs::write(parent.path().join(SUMMARY), "{\"schema\":").expect("written");
    assert!(matches!(
        read(parent.path()),
        Err(DirectoryError::Damaged { .. })
    ));
}

#[test]
fn a_full_disk_leaves_the_former_summary() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        println!("skipped: no /dev/full");
        return;
    }
    let parent = tempfile::tempdir().expect("a directory");
    let path = parent.path().join(SUMMARY);
    fs::write(&path, "before").expect("written");
    std::os::unix::fs::symlink(full, parent.path().join("summary.json.partial")).expect("linked");
    let error = write_whole(&path, b"after").expect_err("there is no space");
    assert!(matches!(error, DirectoryError::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("full"), "{error}");
    assert_eq!(fs::read_to_string(&path).expect("there"), "before");
}

#[test]
fn a_full_disk_keeps_the_lines_for_another_try() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        println!("skipped: no /dev/full");
        return;
    }
    let file = File::options().write(true).open(full).expect("open");
    let mut frames = Frames::to(full.to_owned(), file).expect("a compressor");
    frames.buffer.extend_from_slice(b"{}\n");
    assert!(matches!(
        frames.end_frame(),
        Err(DirectoryError::Full { .. })
    ));
    assert_eq!(frames.buffer, b"{}\n");
}

#[test]
fn any_zstd_tool_reads_the_requests() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = written(parent.path(), 30);
    let file = File::open(directory.join(REQUESTS)).expect("there");
    let text = zstd::stream::decode_all(file).expect("frames one after the other");
    let text = String::from_utf8(text).expect("text");
    let kinds: Vec<String> = text
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            line["kind"].as_str().expect("a kind").to_owned()
        })
        .collect();
    assert_eq!(kinds[..3], ["run", "level", "request"]);
    assert_eq!(kinds.len(), 32);
}
