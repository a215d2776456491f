//! The threads that drive connections, and nothing else.

use std::io;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::CancellationToken;

/// A runtime for the hands. One thread is a runtime of its own kind: without anybody to share with, waking a task
/// takes no lock.
#[derive(Debug)]
pub struct ClientThreads {
    handle: Handle,
    stop: CancellationToken,
    single: Option<JoinHandle<()>>,
    _several: Option<Runtime>,
}

impl ClientThreads {
    /// So many threads, at least one.
    ///
    /// # Errors
    ///
    /// If the system has no more.
    pub fn start(num_threads: usize) -> io::Result<ClientThreads> {
        let stop = CancellationToken::new();
        if num_threads > 1 {
            let runtime = Builder::new_multi_thread()
                .worker_threads(num_threads)
                .thread_name(NAME)
                .enable_all()
                .build()?;
            return Ok(ClientThreads {
                handle: runtime.handle().clone(),
                stop,
                single: None,
                _several: Some(runtime),
            });
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let stopped = stop.clone();
        let single = std::thread::Builder::new()
            .name(NAME.to_owned())
            .spawn(move || runtime.block_on(stopped.cancelled()))?;
        Ok(ClientThreads {
            handle,
            stop,
            single: Some(single),
            _several: None,
        })
    }

    /// For [`super::Hands`].
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for ClientThreads {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(single) = self.single.take() {
            // A panic in it has been told already.
            let _ = single.join();
        }
    }
}

const NAME: &str = "bench-client";
