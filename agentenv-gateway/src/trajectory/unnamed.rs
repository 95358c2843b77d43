//! A trajectory that ends with its process: a file without a name, and before it some memory, so that an event costs no
//! system call.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::storage::Storage;

/// Most bytes that are held in memory.
const HELD: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct UnnamedFile {
    file: File,
    end: Mutex<End>,
}

/// The end of what was written.
#[derive(Debug, Default)]
struct End {
    /// How many bytes the file has.
    filed: u64,
    /// What comes behind them.
    held: Vec<u8>,
}

impl UnnamedFile {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { file: tempfile::tempfile()?, end: Mutex::default() })
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl End {
    /// Puts what is held into the file. What does not fit there stays held.
    fn put_into(&mut self, file: &File) -> io::Result<()> {
        while !self.held.is_empty() {
            match file.write_at(&self.held, self.filed) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.filed += count as u64;
                    self.held.drain(..count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Storage for UnnamedFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut end = self.end();
        if end.held.len() + bytes.len() > HELD {
            end.put_into(&self.file)?;
        }
        if bytes.len() > HELD {
            let count = self.file.write_at(bytes, end.filed)?;
            end.filed += count as u64;
            return Ok(count);
        }
        end.held.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let filed = {
            let end = self.end();
            if position >= end.filed {
                let held = usize::try_from(position - end.filed).ok().and_then(|at| end.held.get(at..));
                let held = held.unwrap_or_default();
                let count = held.len().min(buffer.len());
                buffer[..count].copy_from_slice(&held[..count]);
                return Ok(count);
            }
            end.filed
        };
        let most = usize::try_from(filed - position).unwrap_or(usize::MAX).min(buffer.len());
        self.file.read_at(&mut buffer[..most], position)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut end = self.end();
        match len.checked_sub(end.filed) {
            Some(held) => end.held.truncate(usize::try_from(held).unwrap_or(usize::MAX)),
            None => {
                self.file.set_len(len)?;
                *end = End { filed: len, held: Vec::new() };
            }
        }
        Ok(())
    }

    /// No power cut leaves it behind.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn is_held_in_memory(&self) -> bool {
        true
    }

    fn len(&self) -> io::Result<u64> {
        let end = self.end();
        Ok(end.filed + end.held.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is in it, read in pieces of a size.
    fn read(file: &UnnamedFile, piece: usize) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), vec![0; piece]);
        loop {
            match file.read_at(&mut buffer, all.len() as u64).unwrap() {
                0 => return all,
                count => all.extend_from_slice(&buffer[..count]),
            }
        }
    }

    #[test]
    fn it_reads_as_what_was_written_wherever_that_is() {
        let (file, mut written) = (UnnamedFile::new().unwrap(), Vec::new());
        for (at, size) in [10, HELD - 10, 1, HELD, HELD + 1, 3 * HELD, 0, 100].into_iter().enumerate() {
            let bytes = vec![b'a' + u8::try_from(at).unwrap(); size];
            assert_eq!(file.append(&bytes).unwrap(), size);
            written.extend(bytes);
            assert_eq!(file.len().unwrap(), written.len() as u64);
            for piece in [1 << 20, 4_097] {
                assert!(read(&file, piece) == written, "after {size}, in pieces of {piece}");
            }
        }
        assert!(file.end().held.len() <= HELD);
        assert_eq!(file.read_at(&mut [0], 1 << 40).unwrap(), 0);
        for len in [written.len() - 40, written.len() - 200, HELD, 5, 0] {
            file.truncate(len as u64).unwrap();
            written.truncate(len);
            assert!(read(&file, 1 << 20) == written, "cut to {len}");
            file.append(b"xyz").unwrap();
            assert_eq!(read(&file, 1 << 20).strip_prefix(&written[..]), Some(&b"xyz"[..]));
            file.truncate(len as u64).unwrap();
        }
    }
}
