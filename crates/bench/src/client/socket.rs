//! A TCP socket whose reads are stamped by the kernel.
//!
//! The one idea: a packet's arrival is known to the kernel, to the microsecond, whatever this process is doing then. A
//! stamp taken at the read would be late by as long as the client was busy with other streams; with thousands of them
//! that is what the client would measure, instead of the server.
//!
//! The kernel stamps in wall-clock time, which may be set at any moment. So only the *age* of a stamp is used, and only
//! if wall and steady clock agree about the time since the read before; otherwise, and where the kernel stamps nothing,
//! the moment of the read counts.
//!
//! A read that takes several packets has the stamp of the last one.
//!
//! Source: `SO_TIMESTAMPNS` in socket(7), and its meaning for TCP in the kernel's documentation of time stamping.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::stamp::Stamps;

/// A connected socket and its stamps.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    stamps: Arc<Stamps>,
    clocks: Clocks,
    #[cfg(target_os = "linux")]
    control: Vec<u8>,
}

impl Socket {
    /// Takes over `stream` and asks the kernel to stamp what it receives.
    pub fn new(stream: TcpStream, stamps: Arc<Stamps>) -> Socket {
        #[cfg(target_os = "linux")]
        {
            use nix::sys::socket::{setsockopt, sockopt::ReceiveTimestampns};
            // Where it is refused, reads come without stamps.
            let _ = setsockopt(&stream, ReceiveTimestampns, &true);
        }
        Socket {
            stream,
            stamps,
            clocks: Clocks::now(),
            #[cfg(target_os = "linux")]
            control: nix::cmsg_space!(nix::sys::time::TimeSpec),
        }
    }

    /// Reads once into `room`: how many bytes, and when the last of them arrived in wall-clock time, if that is told.
    #[cfg(target_os = "linux")]
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<(usize, Option<SystemTime>)>> {
        use tokio::io::Interest;

        loop {
            std::task::ready!(self.stream.poll_read_ready(cx))?;
            let mut received = None;
            let num_room = room.len();
            let tried = self.stream.try_io(Interest::READABLE, || {
                let (num_bytes, at) = receive(&self.stream, room, &mut self.control)?;
                received = Some((num_bytes, at));
                match num_bytes {
                    // All there was: told as "would block", the runtime waits for more instead of asking in vain.
                    1.. if num_bytes < num_room => Err(io::ErrorKind::WouldBlock.into()),
                    _ => Ok(()),
                }
            });
            match (received, tried) {
                (Some(received), _) => return Poll::Ready(Ok(received)),
                (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                (None, Err(error)) => return Poll::Ready(Err(error)),
                (None, Ok(())) => unreachable!("what succeeds has received"),
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<(usize, Option<SystemTime>)>> {
        let mut buffer = ReadBuf::new(room);
        Pin::new(&mut self.stream)
            .poll_read(cx, &mut buffer)
            .map_ok(|()| (buffer.filled().len(), None))
    }
}

#[cfg(target_os = "linux")]
fn receive(
    stream: &TcpStream,
    room: &mut [u8],
    control: &mut [u8],
) -> io::Result<(usize, Option<SystemTime>)> {
    use std::os::fd::AsRawFd as _;

    use nix::errno::Errno;
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

    let mut room = [io::IoSliceMut::new(room)];
    let received = loop {
        match recvmsg::<()>(
            stream.as_raw_fd(),
            &mut room,
            Some(control),
            MsgFlags::empty(),
        ) {
            Err(Errno::EINTR) => {}
            other => break other?,
        }
    };
    // A control message that was cut off is a stamp that is not there.
    let at = received.cmsgs().ok().and_then(|mut messages| {
        messages.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(at) => {
                SystemTime::UNIX_EPOCH.checked_add(Duration::from(at))
            }
            _ => None,
        })
    });
    Ok((received.bytes, at))
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    steady: Instant,
    wall: SystemTime,
}

/// Clocks that differ by more about the time since the last read: one was set.
const DISAGREE: Duration = Duration::from_millis(1);

impl Clocks {
    fn now() -> Clocks {
        Clocks {
            steady: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// When in steady time something arrived that the kernel stamped `at` and that was read at `self`; `before` is the
    /// read before.
    fn arrival(&self, before: Clocks, at: Option<SystemTime>) -> Instant {
        let age = at
            .filter(|_| self.agrees_with(before))
            .and_then(|at| self.wall.duration_since(at).ok())
            .and_then(|age| self.steady.checked_sub(age));
        age.unwrap_or(self.steady)
    }

    fn agrees_with(&self, before: Clocks) -> bool {
        let steady = self.steady.saturating_duration_since(before.steady);
        self.wall
            .duration_since(before.wall)
            .is_ok_and(|wall| wall.abs_diff(steady) <= DISAGREE)
    }
}

/// What one read takes at most: a turn of the other streams is worth more than a longer read.
const ROOM_BYTES_MAX: usize = 64 << 10;

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let num_room = buffer.remaining().min(ROOM_BYTES_MAX);
        let room = buffer.initialize_unfilled_to(num_room);
        let (num_bytes, at) = std::task::ready!(self.poll_receive(cx, room))?;
        buffer.advance(num_bytes);
        if num_bytes > 0 {
            let now = Clocks::now();
            self.stamps.read_at(now.arrival(self.clocks, at));
            self.clocks = now;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stamps.written();
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stamps.written();
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn later(clocks: Clocks, steady: Duration, wall: Duration) -> Clocks {
        Clocks {
            steady: clocks.steady + steady,
            wall: clocks.wall + wall,
        }
    }

    /// A socket, and its peer.
    async fn pair() -> (Socket, Arc<Stamps>, TcpStream) {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let near = TcpStream::connect(address).await.expect("a connection");
        let (far, _) = listener.accept().await.expect("a connection");
        let stamps = Stamps::new(Instant::now());
        (Socket::new(near, Arc::clone(&stamps)), stamps, far)
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_late_read_tells_when_its_bytes_arrived() {
        let (mut socket, stamps, mut far) = pair().await;
        far.write_all(b"early").await.expect("room");
        let written = Instant::now();
        // The client is busy elsewhere.
        while written.elapsed() < 20 * MS {
            std::hint::spin_loop();
        }
        let begun = Instant::now();
        let mut bytes = [0; 5];
        socket.read_exact(&mut bytes).await.expect("five bytes");
        assert_eq!(&bytes, b"early");
        let arrived = stamps.last_read().expect("a stamp");
        assert!(arrived < begun, "{:?} after", arrived - begun);
    }

    #[tokio::test]
    async fn every_byte_and_the_end_come_through_whatever_the_room() {
        let all: Vec<u8> = (0..200_000u32).map(|idx| (idx % 251) as u8).collect();
        for room in [1, 7, 4_096, ROOM_BYTES_MAX + 1] {
            let sent = all[..room.saturating_mul(1_000).min(all.len())].to_vec();
            let (mut socket, _, mut far) = pair().await;
            let written = sent.clone();
            tokio::spawn(async move { far.write_all(&written).await });
            let mut received = Vec::new();
            let mut buffer = vec![0; room];
            loop {
                match socket.read(&mut buffer).await.expect("no error") {
                    0 => break,
                    num_bytes => received.extend_from_slice(&buffer[..num_bytes]),
                }
            }
            assert!(
                received == sent,
                "{} of {} bytes",
                received.len(),
                sent.len()
            );
        }
    }

    #[test]
    fn an_arrival_is_as_old_as_its_stamp() {
        let before = Clocks::now();
        let read = later(before, 20 * MS, 20 * MS);
        let arrived = before.wall + 13 * MS;
        assert_eq!(read.arrival(before, Some(arrived)), before.steady + 13 * MS);
    }

    #[test]
    fn a_clock_that_was_set_is_not_believed() {
        let before = Clocks::now();
        for wall in [Duration::ZERO, 17 * MS, 3_600_000 * MS] {
            let read = later(before, 20 * MS, wall);
            assert_eq!(read.arrival(before, Some(before.wall)), read.steady);
        }
        let set_back = Clocks {
            steady: before.steady + 20 * MS,
            wall: before.wall - 5 * MS,
        };
        assert_eq!(set_back.arrival(before, Some(before.wall)), set_back.steady);
    }

    #[test]
    fn without_a_stamp_the_read_counts() {
        let before = Clocks::now();
        let read = later(before, 20 * MS, 20 * MS);
        assert_eq!(read.arrival(before, None), read.steady);
        let of_the_future = Some(read.wall + MS);
        assert_eq!(read.arrival(before, of_the_future), read.steady);
    }
}
