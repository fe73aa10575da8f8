//! Looks at writes whose time has come.

use std::rc::Rc;

use stdx::Instant;

use super::drive::Event;
use crate::Coordinator;
use crate::cluster_state::Cluster;

const NEVER: Instant = Instant(u64::MAX);

impl Coordinator {
    pub(crate) fn start_write_timer(&self) {
        let Some(cluster) = self.cluster() else { return };
        let this = self.clone();
        self.spawn_or_drop("write-timer", async move { this.run_write_timer(cluster).await });
    }

    async fn run_write_timer(&self, cluster: Rc<Cluster>) {
        let (rt, writes) = (&self.inner.rt, &cluster.writes);
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
                self.drive(&cluster, &write, rt.now(), Event::Tick);
            }
        }
    }

    /// Takes no more writes; those that are under way end now, with hints for the silent replicas.
    pub(crate) fn stop_writes(&self) {
        let Some(cluster) = self.inner.cluster.get() else { return };
        cluster.writes.stopping.set(true);
        for write in cluster.writes.all() {
            self.cut_short(cluster, &write);
        }
        cluster.writes.timer.notify_one();
    }
}
