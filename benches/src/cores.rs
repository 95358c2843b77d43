//! Which processors what runs on. What is measured has one that nothing else of the benchmark runs on, wherever there are
//! two: else the system puts the load beside it now and then, and the figures are those of its choice.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processes that run, by their ids.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process has been started.
pub(crate) fn begun(process: u32) {
    running().push(process);
}

/// A process has ended.
pub(crate) fn ended(process: u32) {
    running().retain(|other| *other != process);
}

/// Keeps everything but one process off one processor, until this is dropped. That process may run on all of them.
pub(crate) struct Reserved {
    moved: Vec<u32>,
    all: CpuSet,
}

impl Reserved {
    /// Reserves a processor for a process. With only one there is nothing to reserve.
    pub(crate) fn for_process(measured: u32) -> anyhow::Result<Self> {
        let all = sched_getaffinity(None)?;
        let moved = match all_but_one(&all) {
            Some(others) => {
                let this = std::process::id();
                let moved: Vec<u32> =
                    running().iter().copied().chain([this]).filter(|p| *p != measured).collect();
                moved.iter().for_each(|process| put(*process, &others));
                moved
            }
            None => Vec::new(),
        };
        Ok(Self { moved, all })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.moved.iter().for_each(|process| put(*process, &self.all));
    }
}

fn all_but_one(all: &CpuSet) -> Option<CpuSet> {
    let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| all.is_set(*cpu))?;
    let mut others = *all;
    others.unset(last);
    (others.count() > 0).then_some(others)
}

/// Puts all threads of a process on these processors. One that has ended meanwhile runs nowhere.
fn put(process: u32, cpus: &CpuSet) {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let ids = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    for id in ids.filter_map(Pid::from_raw) {
        let _ = sched_setaffinity(Some(id), cpus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        set
    }

    #[test]
    fn one_of_several_is_reserved() {
        assert_eq!(all_but_one(&set(&[0, 1])), Some(set(&[0])));
        assert_eq!(all_but_one(&set(&[3, 5, 9])), Some(set(&[3, 5])));
        assert_eq!(all_but_one(&set(&[4])), None);
    }

    #[test]
    fn what_is_moved_comes_back() {
        let before = sched_getaffinity(None).unwrap();
        let reserved = Reserved::for_process(0).unwrap();
        let during = sched_getaffinity(None).unwrap();
        assert_eq!(Some(during), all_but_one(&before).or(Some(before)));
        drop(reserved);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
