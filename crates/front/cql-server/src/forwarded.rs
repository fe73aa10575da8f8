//! Statements that other nodes forward to this shard: admitted like those of clients, answered with a frame that the
//! other node passes on.

use crate::frame_sink::FrameSink;
use crate::pending::Freed;
use crate::server::{CqlServer, Server};
use crate::session::Session;
use coordinator::{ForwardRefused, ForwardedStatement};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// Executes statements that other nodes forward to this shard from now on.
pub(crate) fn install(server: &CqlServer) {
    let weak = Rc::downgrade(server.inner());
    let handler = move |statement: ForwardedStatement| -> Pin<Box<dyn Future<Output = _>>> {
        let server = weak.upgrade();
        Box::pin(async move {
            let Some(server) = server.filter(|s| !s.is_draining()) else {
                return Err(ForwardRefused::Stopping);
            };
            serve(&server, &statement).await
        })
    };
    server.inner().query.coordinator.lwt().serve_forwarded(Rc::new(handler));
}

/// Releases a request's share of the limits, also when its task is dropped.
struct Entered<'s>(&'s Server, Freed);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

async fn serve(
    server: &Rc<Server>,
    statement: &ForwardedStatement,
) -> Result<Vec<u8>, ForwardRefused> {
    let bytes = statement.payload.len();
    if server.refuses(bytes, query::ConnectionLoad::Busy, 0).is_some() {
        server.query.counters.overloaded.inc();
        return Err(ForwardRefused::Overloaded);
    }
    let freed = Freed { bytes, count: 1 };
    server.enter(freed);
    let _entered = Entered(server, freed);
    let node = server.settings.query.storage_address;
    let sink_of =
        |client| FrameSink { session: Rc::new(Session::of_forwarded(client, node)), stream: 0 };
    query::serve_forwarded(&server.query, statement, sink_of).await
}
