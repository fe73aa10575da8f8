//! Fuzz entries: any bytes as a row of `system.paxos`, as a message or an answer.

use crate::acceptor::cells::Column;
use crate::acceptor::{AcceptorState, Record};
use crate::value::{Accepted, Commit};
use crate::wire::{Answer, Message};
use stdx::invariant;

/// Cuts `data` into the cells of a row (one byte of length before each, 255 for an absent cell) and
/// reads it. Must never panic, and what it takes for a row must come back from its own cells.
pub fn fuzz_paxos_row(data: &[u8]) {
    let mut cells: [Option<&[u8]>; 8] = [None; 8];
    let mut rest = data;
    for slot in &mut cells {
        let Some((&length, after)) = rest.split_first() else { break };
        rest = after;
        if length == u8::MAX {
            continue;
        }
        let (cell, after) = rest.split_at(usize::from(length).min(rest.len()));
        rest = after;
        *slot = Some(cell);
    }
    let cell = |column| {
        let at = Column::ALL.iter().position(|c| *c == column)?;
        cells.get(at).copied().flatten()
    };
    let Ok(state) = AcceptorState::<Vec<u8>>::from_row(cell) else { return };
    let mut again = Vec::new();
    let mut write = |record: Record<Vec<u8>>| again.extend(record.to_update().cells);
    write(Record::Promise { ballot: state.promised, write: false });
    write(Record::Promise { ballot: state.promised_write, write: true });
    if let Some(Commit { ballot, origin, value }) = state.committed.clone() {
        write(Record::Commit(Commit { ballot, origin, value }));
    }
    if let Some(Accepted { ballot, origin, value }) = state.accepted.clone() {
        write(Record::Accept(Accepted { ballot, origin, value }));
    }
    let cell = |column| {
        let last = again.iter().rev().find(|(c, _)| *c == column);
        last.and_then(|(_, value)| value.as_deref())
    };
    let read = AcceptorState::<Vec<u8>>::from_row(cell);
    invariant!(read.as_ref() == Ok(&state), "row {state:?} came back as {read:?}");
}

/// Reads bytes after the first one as a message (first byte even) or an answer. Must never panic,
/// and an accepted value must come back from its own bytes.
pub fn fuzz_paxos_message(data: &[u8]) {
    let Some((tag, bytes)) = data.split_first() else { return };
    let mut out = Vec::new();
    if tag & 1 == 0 {
        let Ok(message) = Message::<Vec<u8>>::decode(bytes) else { return };
        message.encode(&mut out);
        invariant!(Message::decode(&out).as_ref() == Ok(&message), "message {message:?}");
    } else {
        let Ok(answer) = Answer::<Vec<u8>>::decode(bytes) else { return };
        answer.encode(&mut out);
        invariant!(Answer::decode(&out).as_ref() == Ok(&answer), "answer {answer:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ballot::{Ballot, Scope};

    #[test]
    fn no_mutation_of_a_row_panics() {
        let b = |micros| Ballot::new(micros, Scope::Global, 9);
        let value = Some(b"mutation".to_vec());
        let records = [
            Record::Promise { ballot: b(5), write: true },
            Record::Promise { ballot: b(6), write: false },
            Record::Commit(Commit { ballot: b(3), origin: b(2), value: value.clone() }),
            Record::Accept(Accepted { ballot: b(4), origin: b(4), value }),
        ];
        let mut row = Vec::new();
        for column in Column::ALL {
            let cells = records.iter().rev().flat_map(|r| r.to_update().cells);
            match cells.filter(|(c, _)| *c == column).find_map(|(_, value)| value) {
                None => row.push(255),
                Some(bytes) => {
                    row.push(u8::try_from(bytes.len()).unwrap());
                    row.extend(bytes);
                }
            }
        }
        testkit::Mutations::of([row]).rounds(20_000).run(fuzz_paxos_row);
    }
}
