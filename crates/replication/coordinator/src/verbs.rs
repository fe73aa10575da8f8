//! Which room serves which verb of a peer. The verbs of reads and writes come first.

use internode::Verb;
use messaging::{Request, Responder};
use replica::VerbHandler;

use crate::Rooms;

/// The registered verbs.
pub(crate) const VERBS: &[(Verb, VerbHandler<Rooms>)] = &[
    (Verb::Mutation, write),
    (Verb::Read, read),
    (Verb::RangeRead, read),
    (Verb::MutationForward, write),
    (Verb::PaxosPrepare, paxos),
    (Verb::PaxosPropose, paxos),
    (Verb::PaxosCommit, paxos),
    (Verb::PaxosPrunes, |rooms, request, responder| rooms.lwt.serve_prunes(&request, responder)),
    (Verb::PaxosForward, |rooms, request, responder| rooms.lwt.serve_forward(&request, responder)),
    (Verb::CounterMutation, write),
    (Verb::BatchStore, write),
    (Verb::BatchRemove, write),
    (Verb::Hint, write),
    (Verb::Scan, |rooms, request, responder| rooms.replica_reads.serve_scan(&request, responder)),
    (Verb::FilteredRead, |rooms, request, responder| {
        rooms.replica_reads.serve_filtered(&request, responder);
    }),
    (Verb::IndexSearch, |rooms, request, responder| {
        rooms.replica_reads.serve_search(&request, responder);
    }),
    (Verb::VectorSearch, |rooms, request, responder| {
        rooms.replica_reads.serve_vector_search(&request, responder);
    }),
    (Verb::PaxosRefresh, paxos),
    (Verb::PaxosPrune, paxos),
    (Verb::PaxosRepair, |rooms, request, responder| rooms.lwt.serve_handover(&request, responder)),
];

fn write(rooms: &Rooms, request: Request<'_>, responder: Responder) {
    rooms.peer_writes.serve(&request, responder);
}

fn read(rooms: &Rooms, request: Request<'_>, responder: Responder) {
    rooms.replica_reads.serve_read(&request, responder);
}

fn paxos(rooms: &Rooms, request: Request<'_>, responder: Responder) {
    rooms.lwt.serve_paxos(&request, responder);
}
