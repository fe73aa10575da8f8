//! Reports of a shard of a node with peers to administration.

use std::collections::BTreeMap;

use admin::model::{
    ClusterReport, CopyReport, GossipPeerReport, GossipReport, HintsReport, MessageCounts,
    MessagesReport, PendingHintsReport, ReadRepairReport, RemovalReport, StreamFileReport,
    StreamProgress, StreamReport, StreamingReport, TrafficReport,
};
use cluster::MemberState;
use gossip::{DiskUsage, Flags};
use messaging::KindStats;
use stdx::ShardId;
use streaming::SessionStats;

use super::member::ClusterShard;

impl ClusterShard {
    /// This shard's share of the report.
    pub(crate) fn report(&self) -> ClusterReport {
        let mut report = ClusterReport {
            traffic: self.traffic(),
            messages: Some(self.messages()),
            hints: Some(self.hints_report()),
            streaming: Some(self.streaming_report()),
            read_repair: Some(self.read_repairs()),
            ..ClusterReport::default()
        };
        if self.rt.shard() == ShardId(0) {
            report.operation_mode = self.mode().to_owned();
            report.gossip = Some(self.gossip_report());
            report.timeouts = self.timeouts();
            report.decommission_failed = self.topology.orders().has_decommission_failed();
            report.removal =
                self.topology.orders().removal().map(|(host, waiting)| RemovalReport {
                    host_id: host.to_string(),
                    waiting_for: waiting.iter().map(ToString::to_string).collect(),
                    copies: self.copies_report(),
                });
        }
        report
    }

    fn copies_report(&self) -> Vec<CopyReport> {
        let all = self.topology.orders().copies_of_others().into_iter();
        all.map(|(host, progress)| CopyReport {
            host_id: host.to_string(),
            ranges: progress.ranges,
            ranges_done: progress.ranges_done,
            bytes: progress.bytes,
        })
        .collect()
    }

    fn read_repairs(&self) -> ReadRepairReport {
        let counts = self.coordinator.reads().read_repair_counts();
        // A read waits until what differs is written; nothing is repaired beside one.
        ReadRepairReport {
            attempted: counts.mismatches,
            blocking: counts.mismatches,
            background: 0,
        }
    }

    fn mode(&self) -> &'static str {
        let snapshot = self.membership.snapshot();
        match snapshot.local_member().map(|member| member.state) {
            _ if self.topology.orders().is_put_out() => "DECOMMISSIONED",
            None => "DECOMMISSIONED",
            Some(MemberState::Joining | MemberState::JoinHandover) => "JOINING",
            Some(MemberState::Normal) => "NORMAL",
            Some(MemberState::Leaving | MemberState::LeaveHandover) => "LEAVING",
            Some(MemberState::Moving | MemberState::MoveHandover) => "MOVING",
        }
    }

    fn gossip_report(&self) -> GossipReport {
        let me = self.membership.snapshot().local.host_id;
        let rows = self.liveness.view().into_iter();
        let peers = rows.map(|row| GossipPeerReport {
            host_id: row.host.to_string(),
            generation: row.generation,
            heartbeat: row.version,
            version: row.app.version,
            is_alive: row.is_alive,
            phi: (row.host != me).then_some(row.phi),
            load_bytes: row.app.load,
            epoch: row.app.epoch.0,
            cql_ready: row.app.flags.has(Flags::CQL_READY),
            shutting_down: row.app.flags.has(Flags::SHUTTING_DOWN),
            wrong_clock: row.app.flags.has(Flags::WRONG_CLOCK),
            disk_usage: match row.app.flags.disk_usage() {
                DiskUsage::NotAvailable => String::new(),
                usage => usage.name().to_owned(),
            },
            release_version: row.app.release,
            schema_version: None,
        });
        GossipReport { active: self.liveness.is_gossiping(), peers: peers.collect() }
    }

    fn messages(&self) -> MessagesReport {
        let kinds = self.messaging.kinds_stats();
        let counts = |kind: KindStats| MessageCounts {
            pending: kind.pending,
            sent: kind.sent,
            dropped: kind.dropped,
        };
        MessagesReport {
            large: counts(kinds.large),
            small: counts(kinds.small),
            gossip: counts(kinds.gossip),
        }
    }

    fn traffic(&self) -> Vec<TrafficReport> {
        let stats = self.messaging.peer_stats().into_iter();
        stats
            .map(|peer| TrafficReport {
                host_id: peer.host.to_string(),
                links: peer.links as u64,
                inbounds: peer.inbounds as u64,
                pending: peer.pending as u64,
                queued_bytes: peer.queued_bytes as u64,
                sent: peer.sent,
                received: peer.received,
                dropped: peer.dropped,
                sent_bytes: peer.sent_bytes,
                received_bytes: peer.received_bytes,
                rtt_micros: peer.rtt.map(|rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)),
            })
            .collect()
    }

    fn hints_report(&self) -> HintsReport {
        let settings = self.hints.settings();
        let pending = self.hints.pending().into_iter().map(|pending| PendingHintsReport {
            host_id: pending.host.to_string(),
            files: pending.files,
            bytes: pending.bytes,
            oldest_millis: pending.oldest.millis(),
            newest_millis: pending.newest.millis(),
        });
        HintsReport {
            enabled: settings.enabled,
            paused: self.hints.is_paused(),
            window_millis: u64::try_from(settings.window.as_millis()).unwrap_or(u64::MAX),
            throttle_kib: settings.throttle_bytes_per_second >> 10,
            disabled_datacenters: settings.disabled_datacenters.into_iter().collect(),
            pending: pending.collect(),
        }
    }

    fn streaming_report(&self) -> StreamingReport {
        let stats = self.streaming.stats();
        // Rows have no files, and their number of bytes is not known in advance.
        let progress = |session: &SessionStats| StreamProgress {
            files: session.ranges + session.files,
            files_done: session.ranges_done + session.files_done,
            bytes: session.bytes + session.file_bytes.saturating_sub(session.file_bytes_done),
            bytes_done: session.bytes,
        };
        let current = |session: &SessionStats| {
            let files = session.current.iter();
            files
                .map(|file| StreamFileReport {
                    name: file.name.clone(),
                    bytes: file.bytes,
                    bytes_done: file.bytes_done,
                })
                .collect()
        };
        let wall = self.rt.wall().millis();
        let ago = |time: std::time::Duration| {
            wall.saturating_sub(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
        };
        let report = |session: &SessionStats| StreamReport {
            operation: session.operation.clone(),
            plan_id: session.plan.to_string(),
            host_id: session.host.to_string(),
            receiving: None,
            sending: None,
            current: current(session),
            is_active: session.is_active,
            started_at_millis: ago(session.age),
            updated_at_millis: ago(session.idle),
        };
        let receiving = stats.receiving.iter();
        let receiving =
            receiving.map(|s| StreamReport { receiving: Some(progress(s)), ..report(s) });
        let sending = stats.sending.iter();
        let sending = sending.map(|s| StreamReport { sending: Some(progress(s)), ..report(s) });
        StreamingReport {
            bytes_per_second_max: stats.bytes_per_second_max,
            inter_dc_bytes_per_second_max: stats.inter_dc_bytes_per_second_max,
            sessions: receiving.chain(sending).collect(),
        }
    }

    fn timeouts(&self) -> BTreeMap<String, u64> {
        let connect = self.options.internode_tcp_connect_timeout.as_millis();
        let connect = u64::try_from(connect).unwrap_or(u64::MAX);
        BTreeMap::from([("internodeconnect".to_owned(), connect)])
    }
}
