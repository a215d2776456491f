//! What the client takes of the machine, from `/proc`; elsewhere it is not known.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a process has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor seconds, of all threads.
    pub cpu_s: f64,
    /// The largest resident memory.
    pub memory_peak_bytes: u64,
}

impl Usage {
    /// This process until now; zeros where the system does not tell.
    pub fn now() -> Usage {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Usage {
            cpu_s: ticks(&stat).unwrap_or(0) as f64 / TICKS_PER_S,
            memory_peak_bytes: peak_kib(&status).unwrap_or(0) << 10,
        }
    }
}

/// Linux tells times in these, on every architecture.
const TICKS_PER_S: f64 = 100.0;

/// User and system time of `/proc/PID/stat`. The second field is a name in brackets that may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn peak_kib(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

/// Lets this process open as many files as it may, and says how many that is; none if there is no bound.
pub fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_behind_a_name_that_may_hold_anything() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 900 0 0 0 250 50 0 0 20 0 3 0 100 1 1";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("nonsense"), None);
    }

    #[test]
    fn the_peak_is_told_in_kibibytes() {
        assert_eq!(peak_kib("Name:\tx\nVmHWM:\t   2048 kB\n"), Some(2048));
        assert_eq!(peak_kib(""), None);
    }
}
