//! Steps the writes that are due.

use std::rc::Rc;

use stdx::Instant;

use super::drive::Event;
use super::{Attached, Writer};

const NEVER: Instant = Instant(u64::MAX);

impl Writer {
    pub(crate) fn start_write_timer(&self) {
        let Some(attached) = self.attached().cloned() else { return };
        let this = self.clone();
        self.env()
            .spawn_or_drop("write-timer", async move { this.run_write_timer(attached).await });
    }

    async fn run_write_timer(&self, attached: Rc<Attached>) {
        let (rt, writes) = (&self.env().rt, &attached.writes);
        while !writes.stopping.get() {
            let next = writes.next_due().unwrap_or(NEVER);
            writes.armed.set(next);
            let woken = writes.timer.notified();
            if next == NEVER {
                woken.await;
            } else if rt.now() < next {
                // Either may come first, then the loop looks again.
                let _ = rt.timeout(next, woken).await;
            }
            while let Some(write) = writes.take_due(rt.now()) {
                self.drive(&attached, &write, rt.now(), Event::Tick);
            }
        }
    }

    /// Accepts no more writes; those in flight end now, with hints for the silent replicas.
    pub(crate) fn stop_writes(&self) {
        let Some(attached) = self.attached() else { return };
        attached.writes.stopping.set(true);
        for write in attached.writes.all() {
            self.cut_short(attached, &write);
        }
        attached.writes.timer.notify_one();
    }
}
