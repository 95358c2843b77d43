//! Where the lines are kept: a regular file that one process owns. What is in it is left to the others.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the writer and the readers need of a file; tests put a failing one in its place. What is for a name's sake is nothing
/// to one without.
pub(super) trait Storage: Send + Sync {
    /// Writes at the end; may write less than all, as `write(2)` does.
    fn append(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Reads at a position; 0 bytes at the end.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// Cuts off what is behind a length.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Puts what was written where a power cut does not reach it.
    fn sync(&self) -> io::Result<()>;
    /// The same for its name, without which a power cut may leave nothing of a new file.
    fn sync_name(&self) {}
    /// Whether most appends stay in memory, so that there is nothing to save by sharing them.
    fn is_held_in_memory(&self) -> bool {
        false
    }
    /// Whether it is still where it was opened, and how long it is.
    fn look(&self) -> io::Result<Place> {
        self.len().map(Place::Here)
    }
    /// How many bytes it has, wherever it is.
    fn len(&self) -> io::Result<u64>;
    /// Begins anew where it was opened, if nothing is there.
    fn reopen(&self) -> io::Result<Arc<dyn Storage>> {
        Err(ErrorKind::Unsupported.into())
    }
    /// Lets another process have it.
    fn release(&self) {}
}

/// What has become of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It is where it was and has this many bytes.
    Here(u64),
    /// It was removed, or another one stands in its place.
    Gone,
}

/// A file, opened to append and locked.
#[derive(Debug)]
pub(super) struct RegularFile {
    file: File,
    path: PathBuf,
    /// Which file stood under its name.
    identity: (u64, u64),
}

/// Why a file cannot be had.
#[derive(Debug)]
pub(super) enum Refused {
    /// Another process has it.
    Locked,
    /// It is no regular file, so it cannot be read back.
    NotRegular,
    /// The system says no.
    Io(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl RegularFile {
    /// Opens or creates a file and takes its lock.
    pub(super) fn open(path: &Path) -> Result<Self, Refused> {
        // Looked at first, since opening a pipe that nobody reads would wait for ever.
        match path.metadata() {
            Ok(found) if !found.is_file() => return Err(Refused::NotRegular),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(Refused::NotRegular);
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Refused::Locked),
            // Some file systems have no locks; better unlocked than not at all.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                tracing::warn!(
                    "the trajectory's file system has no locks: nothing keeps a second gateway out"
                );
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        // Absolute, so that it is found again should the process change its folder.
        let path = std::path::absolute(path)?;
        Ok(Self { file, path, identity: (found.dev(), found.ino()) })
    }
}

impl Storage for RegularFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.file).write(bytes)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_name(&self) {
        if let Some(Ok(folder)) = self.path.parent().map(File::open) {
            // Not every file system can.
            let _ = folder.sync_all();
        }
    }

    fn look(&self) -> io::Result<Place> {
        match self.path.metadata() {
            Ok(found) if (found.dev(), found.ino()) == self.identity => Ok(Place::Here(found.len())),
            Ok(_) => Ok(Place::Gone),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Place::Gone),
            Err(error) => Err(error),
        }
    }

    fn len(&self) -> io::Result<u64> {
        self.file.metadata().map(|found| found.len())
    }

    fn reopen(&self) -> io::Result<Arc<dyn Storage>> {
        let file = Self::open(&self.path).map_err(|refused| match refused {
            Refused::Io(error) => error,
            Refused::Locked | Refused::NotRegular => io::Error::other("something else stands in its place"),
        })?;
        match file.look()? {
            Place::Here(0) => Ok(Arc::new(file)),
            _ => Err(io::Error::other("another file stands in its place")),
        }
    }

    fn release(&self) {
        let _ = self.file.unlock();
    }
}

/// Where the last line ends before a position: behind its newline, or 0.
pub(super) fn line_end_before(storage: &dyn Storage, mut end: u64) -> io::Result<u64> {
    let mut piece = vec![0; 64 << 10];
    while end > 0 {
        let start = end.saturating_sub(piece.len() as u64);
        let mut have = 0;
        while (have as u64) < end - start {
            let want = usize::try_from(end - start).unwrap_or(piece.len());
            match storage.read_at(&mut piece[have..want], start + have as u64)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => have += read,
            }
        }
        if let Some(at) = memchr::memrchr(b'\n', &piece[..have]) {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}
