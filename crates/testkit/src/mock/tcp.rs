//! The same servers on a port, for programs that are run as such.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use super::{Asked, Mock, Script};

/// Serves on a free port of the loop-back address, on a thread that ends with the process.
///
/// # Panics
///
/// If there is no port or no thread.
pub fn serve<F, A>(server: Arc<Mock<F>>) -> SocketAddr
where
    F: Fn(Asked) -> A + Send + Sync + 'static,
    A: Future<Output = Script> + Send + 'static,
{
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener
        .set_nonblocking(true)
        .expect("sockets can be non-blocking");
    let address = listener.local_addr().expect("a bound port");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            while let Ok((stream, _)) = listener.accept().await {
                // Else the kernel holds small writes back for as long as the client's acknowledgement takes.
                stream.set_nodelay(true).expect("a socket can be told");
                let server = Arc::clone(&server);
                tokio::spawn(async move { server.serve(stream).await });
            }
        });
    });
    address
}
