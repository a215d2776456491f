//! Waiting for a moment more exactly than the runtime's timers, which tell milliseconds.
//!
//! A schedule of thousands of requests a second must not be late by a millisecond each time. Linux tells a moment by a
//! file descriptor, to some ten microseconds; where there is none, and under a clock of tests, the runtime's own timers do.

use tokio::time::{Instant, sleep_until};

/// Whose clock rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The kernel's, where it has one.
    Kernel,
    /// The runtime's: the only one that tests can move.
    Runtime,
}

/// Something that rings.
#[derive(Debug)]
pub(super) struct Alarm {
    #[cfg(target_os = "linux")]
    kernel: Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>,
}

impl Alarm {
    /// One for a schedule; the runtime's if the kernel has none left.
    pub(super) fn new(timer: Timer) -> Alarm {
        #[cfg(target_os = "linux")]
        {
            let kernel = match timer {
                Timer::Kernel => linux::open(),
                Timer::Runtime => None,
            };
            Alarm { kernel }
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = timer;
            Alarm {}
        }
    }

    /// Returns at `moment`, or at once if it is over.
    pub(super) async fn wait_until(&self, moment: Instant) {
        #[cfg(target_os = "linux")]
        if let Some(kernel) = &self.kernel
            && linux::wait(kernel, moment).await.is_ok()
        {
            return;
        }
        sleep_until(moment).await;
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;
    use tokio::time::Instant;

    pub(super) fn open() -> Option<AsyncFd<OwnedFd>> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).ok()?;
        #[expect(
            deprecated,
            reason = "deprecated for types that lie about their descriptor; an OwnedFd owns it"
        )]
        AsyncFd::new(timer).ok()
    }

    pub(super) async fn wait(timer: &AsyncFd<OwnedFd>, moment: Instant) -> io::Result<()> {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let never = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let setting = Itimerspec {
            it_interval: never,
            it_value: Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            },
        };
        timerfd_settime(timer.get_ref(), TimerfdTimerFlags::empty(), &setting)?;
        loop {
            let mut ready = timer.readable().await?;
            let mut num_rung = [0; 8];
            match rustix::io::read(timer.get_ref(), &mut num_rung) {
                Ok(_) => return Ok(()),
                // What made it readable was read before: the last setting's ring.
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn an_alarm_never_rings_early_and_rings_again() {
        for timer in [Timer::Kernel, Timer::Runtime] {
            let alarm = Alarm::new(timer);
            for wait in [3, 0, 1] {
                let moment = Instant::now() + Duration::from_millis(wait);
                alarm.wait_until(moment).await;
                assert!(Instant::now() >= moment, "{timer:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_runtimes_alarm_follows_a_clock_that_is_moved() {
        let begun = Instant::now();
        let alarm = Alarm::new(Timer::Runtime);
        alarm.wait_until(begun + Duration::from_secs(3600)).await;
        assert_eq!(begun.elapsed().as_secs(), 3600);
    }
}
