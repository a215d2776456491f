//! Reading a run directory, whatever was left of it.
//!
//! A file that ends in the middle is no error: a run was killed. What can be read is given, and [`Tail`] tells what
//! cannot. Files may be anybody's: everything read is bounded by [`LIMITS`].

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::{
    DirectoryError, LIMITS, LevelLine, Line, REQUESTS, REQUESTS_SCHEMA, Request, RunLine, SERIES,
    SUMMARY,
};
use crate::report::Series;
use crate::summary::{SCHEMA, Summary};

/// A run as found.
#[derive(Debug)]
pub struct Run {
    /// Its directory.
    pub directory: PathBuf,
    /// Its figures; none if the run was killed before they were written.
    pub summary: Option<Summary>,
    /// Its curves.
    pub series: Option<Series>,
    /// What ran; none if not even that line was written.
    pub run: Option<RunLine>,
    /// The levels that began.
    pub levels: Vec<LevelLine>,
    /// The requests that ended, in order of ending, without their events (see [`lines`] for those).
    pub requests: Vec<Request>,
    /// What could not be read.
    pub tail: Tail,
}

/// What could not be read of `requests.jsonl.zst`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// Bytes of the file after its last whole frame; 0 if it is whole.
    pub lost_bytes: u64,
    /// Lines that are no lines of this schema.
    pub unreadable_lines: u64,
    /// Why reading stopped, if it did not at the end.
    pub because: Option<String>,
}

impl Tail {
    /// Whether everything was read.
    pub fn is_whole(&self) -> bool {
        *self == Tail::default()
    }
}

/// Reads a run directory.
///
/// # Errors
///
/// If there is no run in it, a file cannot be opened, or `summary.json` is damaged. A cut `requests.jsonl.zst` is no
/// error.
///
/// # Cost
///
/// About 300 bytes a request.
pub fn read(directory: &Path) -> Result<Run, DirectoryError> {
    let mut found = Run {
        directory: directory.to_owned(),
        summary: read_json::<Summary>(&directory.join(SUMMARY), SCHEMA)?,
        series: read_json::<Series>(&directory.join(SERIES), crate::report::SERIES_SCHEMA)?,
        run: None,
        levels: Vec::new(),
        requests: Vec::new(),
        tail: Tail::default(),
    };
    if !directory.join(REQUESTS).exists() {
        // A summary alone is enough for a report, and a run may have been told not to keep requests.
        return match found.summary {
            Some(_) => Ok(found),
            None => Err(DirectoryError::NoRun {
                path: directory.to_owned(),
            }),
        };
    }
    let mut lines = lines(directory)?;
    for line in lines.by_ref() {
        match line {
            Line::Run(run) => found.run = Some(*run),
            Line::Level(level) => found.levels.push(level),
            Line::Request(mut request) => {
                request.events = super::Events::default();
                found.requests.push(*request);
                if found.requests.len() >= LIMITS.requests_max {
                    break;
                }
            }
        }
    }
    found.tail = lines.tail();
    if found.requests.len() >= LIMITS.requests_max {
        found.tail.because = Some(format!("only {} requests are kept", LIMITS.requests_max));
    }
    Ok(found)
}

/// The lines of a run, one after the other, events included.
///
/// # Errors
///
/// If the file cannot be opened, or its first line says another schema.
pub fn lines(directory: &Path) -> Result<Lines, DirectoryError> {
    let path = directory.join(REQUESTS);
    let opened = File::open(&path).and_then(|file| {
        let file_bytes = file.metadata()?.len();
        Ok((FrameReader::new(file), file_bytes))
    });
    let (frames, file_bytes) = opened.map_err(|source| DirectoryError::read(&path, source))?;
    let mut lines = Lines {
        frames: BufReader::with_capacity(128 << 10, frames),
        file_bytes,
        num_bytes: 0,
        buffer: Vec::new(),
        first: None,
        tail: Tail::default(),
        is_over: false,
    };
    lines.first = lines.next_line();
    if let Some(Line::Run(run)) = &lines.first
        && run.schema != REQUESTS_SCHEMA
    {
        return Err(DirectoryError::Schema {
            path,
            expected: REQUESTS_SCHEMA,
            found: run.schema.clone(),
        });
    }
    Ok(lines)
}

/// Lines that are being read. They end with the file or where it is cut; [`Lines::tail`] then tells which.
pub struct Lines {
    frames: BufReader<FrameReader>,
    file_bytes: u64,
    num_bytes: u64,
    buffer: Vec<u8>,
    first: Option<Line>,
    tail: Tail,
    is_over: bool,
}

impl Iterator for Lines {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        self.first.take().or_else(|| self.next_line())
    }
}

impl Lines {
    /// What could not be read so far.
    pub fn tail(&self) -> Tail {
        self.tail.clone()
    }

    fn next_line(&mut self) -> Option<Line> {
        while !self.is_over {
            self.buffer.clear();
            let bounded = LIMITS.line_bytes_max as u64 + 1;
            let read = (&mut self.frames)
                .take(bounded)
                .read_until(b'\n', &mut self.buffer);
            self.num_bytes += self.buffer.len() as u64;
            match read {
                Err(error) => self.stop(error.to_string()),
                Ok(0) => self.is_over = true,
                Ok(_) if self.buffer.last() != Some(&b'\n') => self.stop_inside_a_line(),
                Ok(_) if self.num_bytes > LIMITS.lines_bytes_max => {
                    self.stop(format!("only {} bytes are read", LIMITS.lines_bytes_max));
                }
                Ok(_) => match serde_json::from_slice(&self.buffer) {
                    Ok(line) => return Some(line),
                    Err(_) if is_another_kind(&self.buffer) => (),
                    Err(_) => self.tail.unreadable_lines += 1,
                },
            }
        }
        None
    }

    fn stop_inside_a_line(&mut self) {
        let because = match self.buffer.len() > LIMITS.line_bytes_max {
            true => format!("a line has more than {} bytes", LIMITS.line_bytes_max),
            false => "the last line has no end".to_owned(),
        };
        self.tail.unreadable_lines += 1;
        self.stop(because);
    }

    fn stop(&mut self, because: String) {
        self.is_over = true;
        self.tail.lost_bytes =
            self.file_bytes - self.frames.get_ref().whole_bytes.min(self.file_bytes);
        self.tail.because = Some(because);
    }
}

/// Whether a line is JSON of a kind that this version does not know: of a later one, so no damage.
fn is_another_kind(line: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Kind {
        kind: String,
    }
    let known = ["run", "level", "request"];
    serde_json::from_slice::<Kind>(line).is_ok_and(|line| !known.contains(&line.kind.as_str()))
}

/// Decompresses frame after frame and knows where the last whole one ended.
struct FrameReader {
    /// None between frames and at the end.
    decoder: Option<zstd::stream::read::Decoder<'static, BufReader<Counted>>>,
    between: Option<BufReader<Counted>>,
    whole_bytes: u64,
}

impl FrameReader {
    fn new(file: File) -> FrameReader {
        let counted = Counted { file, num_bytes: 0 };
        FrameReader {
            decoder: None,
            between: Some(BufReader::with_capacity(64 << 10, counted)),
            whole_bytes: 0,
        }
    }
}

impl Read for FrameReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(decoder) = &mut self.decoder {
                let num_bytes = decoder.read(buffer)?;
                if num_bytes > 0 {
                    return Ok(num_bytes);
                }
                self.between = self.decoder.take().map(|decoder| decoder.finish());
            }
            let Some(mut file) = self.between.take() else {
                return Ok(0);
            };
            self.whole_bytes = file.get_ref().num_bytes - file.buffer().len() as u64;
            if file.fill_buf()?.is_empty() {
                return Ok(0);
            }
            let mut decoder = zstd::stream::read::Decoder::with_buffer(file)?.single_frame();
            decoder.window_log_max(LIMITS.window_log_max)?;
            self.decoder = Some(decoder);
        }
    }
}

/// A file that knows how much of it was read.
struct Counted {
    file: File,
    num_bytes: u64,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let num_bytes = self.file.read(buffer)?;
        self.num_bytes += num_bytes as u64;
        Ok(num_bytes)
    }
}

/// A JSON file of a schema; none if it is not there.
fn read_json<T: DeserializeOwned>(
    path: &Path,
    schema: &'static str,
) -> Result<Option<T>, DirectoryError> {
    #[derive(serde::Deserialize)]
    struct Named {
        schema: String,
    }
    let bytes_max = LIMITS.json_bytes_max;
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(DirectoryError::read(path, source)),
    };
    let mut bytes = Vec::new();
    file.take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| DirectoryError::read(path, source))?;
    if bytes.len() as u64 > bytes_max {
        return Err(DirectoryError::TooLarge {
            path: path.to_owned(),
            bytes: bytes.len() as u64,
            bytes_max,
        });
    }
    let damaged = |error: serde_json::Error| DirectoryError::Damaged {
        path: path.to_owned(),
        why: error.to_string(),
    };
    let named: Named = serde_json::from_slice(&bytes).map_err(damaged)?;
    if named.schema != schema {
        return Err(DirectoryError::Schema {
            path: path.to_owned(),
            expected: schema,
            found: named.schema,
        });
    }
    serde_json::from_slice(&bytes).map(Some).map_err(damaged)
}
