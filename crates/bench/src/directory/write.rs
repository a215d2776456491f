//! Writing a run directory.
//!
//! A frame is compressed in memory and written in one go, so a file holds whole frames but for the moment of a
//! write; and when a write fails, the file is cut back to the frame before.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{DirectoryError, LIMITS, LevelLine, Line, REQUESTS, Request, RunLine, SERIES, SUMMARY};
use crate::report::Series;
use crate::sample::Sample;
use crate::summary::Summary;

/// zstd's default: 400 MB/s on one core, a fifth of the size.
const COMPRESSION: i32 = 3;

/// A run directory that is being written.
pub struct RunWriter {
    directory: PathBuf,
    classes: Vec<String>,
    requests: Frames,
}

impl RunWriter {
    /// Makes the directory and writes the run's line. If `wanted` exists, `wanted-2`, `wanted-3`, ... is made
    /// instead: see [`RunWriter::directory`].
    ///
    /// # Errors
    ///
    /// If no directory can be made there, or nothing be written.
    pub fn create(wanted: &Path, run: &RunLine) -> Result<RunWriter, DirectoryError> {
        let directory = make_directory(wanted)?;
        let mut writer = RunWriter {
            requests: Frames::create(directory.join(REQUESTS))?,
            classes: run.classes.clone(),
            directory,
        };
        writer.write_line(&Line::Run(Box::new(run.clone())))?;
        writer.flush()?;
        Ok(writer)
    }

    /// Where the run is written.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A level begins.
    ///
    /// # Errors
    ///
    /// If a frame is due and cannot be written.
    pub fn level(&mut self, level: &LevelLine) -> Result<(), DirectoryError> {
        self.write_line(&Line::Level(level.clone()))
    }

    /// A request has ended.
    ///
    /// # Errors
    ///
    /// If a frame is due and cannot be written. Its lines are kept and tried again by the next call; a caller that
    /// goes on calling nevertheless keeps them all in memory.
    ///
    /// # Cost
    ///
    /// About 20 ns an event; a write and a millisecond every 256 KiB.
    pub fn request(&mut self, sample: &Sample) -> Result<(), DirectoryError> {
        let request = Request::of(sample, &self.classes);
        self.write_line(&Line::Request(Box::new(request)))
    }

    /// Tells the time, in seconds since the run began: a frame older than a second ends. To be called at least
    /// every second, whether or not requests end.
    ///
    /// # Errors
    ///
    /// If the frame cannot be written.
    pub fn tick(&mut self, now_s: f64) -> Result<(), DirectoryError> {
        let began = *self.requests.began_s.get_or_insert(now_s);
        if now_s - began >= LIMITS.frame_s_max {
            self.flush()?;
        }
        Ok(())
    }

    /// Ends the frame: what was written so far survives a kill.
    ///
    /// # Errors
    ///
    /// If the frame cannot be written.
    pub fn flush(&mut self) -> Result<(), DirectoryError> {
        self.requests.end_frame()
    }

    /// Ends the run: all requests, then the curves, then the figures are on the disk.
    ///
    /// # Errors
    ///
    /// If one of the files cannot be written. What was written before stays.
    pub fn finish(mut self, summary: &Summary, series: &Series) -> Result<PathBuf, DirectoryError> {
        self.flush()?;
        self.requests.sync()?;
        write_json(&self.directory.join(SERIES), series)?;
        write_json(&self.directory.join(SUMMARY), summary)?;
        Ok(self.directory)
    }

    fn write_line(&mut self, line: &Line) -> Result<(), DirectoryError> {
        let buffer = &mut self.requests.buffer;
        serde_json::to_writer(&mut *buffer, line)
            .expect("lines have string keys and no failing parts");
        buffer.push(b'\n');
        if buffer.len() >= LIMITS.frame_bytes_max {
            self.flush()?;
        }
        Ok(())
    }
}

/// Writes a whole file: under its name stands what was there before or all of `bytes`, never a part.
///
/// # Errors
///
/// If it cannot be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), DirectoryError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let written = File::create(&partial).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        sync_directory_of(path)
    });
    written.map_err(|source| {
        // It may never have come to be; the failure to tell is the first one.
        let _ = fs::remove_file(&partial);
        DirectoryError::write(path, source)
    })
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), DirectoryError> {
    let mut bytes =
        serde_json::to_vec_pretty(value).expect("summaries have string keys and no failing parts");
    bytes.push(b'\n');
    write_whole(path, &bytes)
}

/// A rename is on the disk when its directory is.
fn sync_directory_of(path: &Path) -> io::Result<()> {
    match path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        Some(parent) => File::open(parent)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

fn make_directory(wanted: &Path) -> Result<PathBuf, DirectoryError> {
    if let Some(parent) = wanted.parent() {
        fs::create_dir_all(parent).map_err(|source| DirectoryError::write(parent, source))?;
    }
    for number in 1..=LIMITS.names_max {
        let directory = numbered(wanted, number);
        match fs::create_dir(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            Err(source) => return Err(DirectoryError::write(&directory, source)),
        }
    }
    Err(DirectoryError::Taken {
        wanted: wanted.to_owned(),
        names_max: LIMITS.names_max,
    })
}

fn numbered(wanted: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return wanted.to_owned();
    }
    // Without its components' normalisation, `runs/` would become `runs/-2`.
    let mut name = wanted.components().as_path().as_os_str().to_owned();
    name.push(format!("-{number}"));
    PathBuf::from(name)
}

/// A file of frames.
pub(super) struct Frames {
    path: PathBuf,
    file: File,
    /// Bytes of whole frames.
    file_bytes: u64,
    /// Lines of the frame to come.
    pub(super) buffer: Vec<u8>,
    /// When the frame to come was first ticked.
    began_s: Option<f64>,
    compressor: zstd::bulk::Compressor<'static>,
}

impl Frames {
    fn create(path: PathBuf) -> Result<Frames, DirectoryError> {
        match File::create_new(&path) {
            Ok(file) => Frames::to(path, file),
            Err(source) => Err(DirectoryError::write(&path, source)),
        }
    }

    pub(super) fn to(path: PathBuf, file: File) -> Result<Frames, DirectoryError> {
        let made = || {
            let mut compressor = zstd::bulk::Compressor::new(COMPRESSION)?;
            compressor.include_checksum(true)?;
            Ok(compressor)
        };
        let compressor = made().map_err(|source| DirectoryError::write(&path, source))?;
        Ok(Frames {
            path,
            file,
            file_bytes: 0,
            buffer: Vec::with_capacity(LIMITS.frame_bytes_max * 2),
            began_s: None,
            compressor,
        })
    }

    pub(super) fn end_frame(&mut self) -> Result<(), DirectoryError> {
        self.began_s = None;
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = self.compressor.compress(&self.buffer).and_then(|frame| {
            self.file.write_all(&frame)?;
            Ok(frame.len() as u64)
        });
        match written {
            Ok(num_bytes) => {
                self.file_bytes += num_bytes;
                self.buffer.clear();
                Ok(())
            }
            Err(source) => {
                // The lines stay in the buffer: the caller may try again when there is space.
                self.cut_back();
                Err(DirectoryError::write(&self.path, source))
            }
        }
    }

    /// Half a frame would hide the frames that follow it.
    fn cut_back(&mut self) {
        use std::io::Seek;
        let cut = self.file.set_len(self.file_bytes);
        let sought = self.file.seek(io::SeekFrom::Start(self.file_bytes));
        // If even that fails, the reader still stops at the last whole frame.
        let _ = cut.and(sought);
    }

    fn sync(&mut self) -> Result<(), DirectoryError> {
        self.file
            .sync_all()
            .map_err(|source| DirectoryError::write(&self.path, source))
    }
}
