//! One node of the cluster as the metadata log knows it.
//!
//! Owns: [`Member`], its life ([`MemberState`]) and its encoding in the log. Never: liveness and
//! load (that is gossip), changes of state (those are of [`crate::topology`]).
//!
//! INV-member-1: tokens are ascending and distinct. INV-member-2: `moving_to` is set in the states
//! `Moving` and `MoveHandover` only, `replaces` in `Joining` and `JoinHandover` only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use codec::{DecodeError, DecodeErrorKind, Reader, Writer};
use stdx::{HostId, Token, Uuid};

/// Most tokens of one member; Cassandra's limit of `num_tokens`.
pub const TOKENS_MAX: usize = 1_536;
/// Longest name of a datacenter or rack, and longest release text, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// An address that is not known: a member whose first start was before addresses were in the log,
/// or whose old address now belongs to another one.
pub const ADDRESS_UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// First byte of an encoded member.
const VERSION: u8 = 1;

/// State of a member in the ring.
///
/// Every movement has two steps, so that coordinators one epoch apart always agree: in the first
/// one the new owners are written to but not read (`Joining`, `Leaving`, `Moving`), in the second
/// one they are read and the old owners are still written to (`…Handover`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// Takes over its data; written to, not read.
    Joining,
    /// Has its data and is read; those it took it from are still written to.
    JoinHandover,
    /// Owns its ranges.
    Normal,
    /// Gives its data away; the future owners are written to as well.
    Leaving,
    /// Others own its ranges and are read; it is still written to.
    LeaveHandover,
    /// Takes over the data of other tokens.
    Moving,
    /// The other tokens are read; the old owners of everything that moves are still written to.
    MoveHandover,
}

impl MemberState {
    /// The states in the order of their numbers in the log.
    pub const ALL: [MemberState; 7] = [
        MemberState::Joining,
        MemberState::JoinHandover,
        MemberState::Normal,
        MemberState::Leaving,
        MemberState::LeaveHandover,
        MemberState::Moving,
        MemberState::MoveHandover,
    ];

    /// Returns true if reads already use the ring that results from the movement.
    pub fn is_handover(self) -> bool {
        match self {
            MemberState::JoinHandover | MemberState::LeaveHandover | MemberState::MoveHandover => {
                true
            }
            MemberState::Joining
            | MemberState::Normal
            | MemberState::Leaving
            | MemberState::Moving => false,
        }
    }

    /// The second letter of `nodetool status`: N, J, L or M.
    pub fn letter(self) -> char {
        match self {
            MemberState::Joining | MemberState::JoinHandover => 'J',
            MemberState::Normal => 'N',
            MemberState::Leaving | MemberState::LeaveHandover => 'L',
            MemberState::Moving | MemberState::MoveHandover => 'M',
        }
    }

    /// The word that `nodetool ring`, `info` and `netstats` use: Normal, Joining, Leaving, Moving.
    pub fn word(self) -> &'static str {
        match self.letter() {
            'J' => "Joining",
            'L' => "Leaving",
            'M' => "Moving",
            _ => "Normal",
        }
    }

    fn code(self) -> u8 {
        match self {
            MemberState::Joining => 0,
            MemberState::JoinHandover => 1,
            MemberState::Normal => 2,
            MemberState::Leaving => 3,
            MemberState::LeaveHandover => 4,
            MemberState::Moving => 5,
            MemberState::MoveHandover => 6,
        }
    }
}

impl std::fmt::Display for MemberState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MemberState::Joining => "joining",
            MemberState::JoinHandover => "joining (handover)",
            MemberState::Normal => "normal",
            MemberState::Leaving => "leaving",
            MemberState::LeaveHandover => "leaving (handover)",
            MemberState::Moving => "moving",
            MemberState::MoveHandover => "moving (handover)",
        })
    }
}

/// A node that is in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Identity; never changes.
    pub host_id: HostId,
    /// Address for other nodes; [`ADDRESS_UNKNOWN`] until it has announced one.
    pub storage: SocketAddr,
    /// Address for clients; [`ADDRESS_UNKNOWN`] until it has announced one.
    pub rpc: SocketAddr,
    /// Datacenter, from its snitch.
    pub datacenter: String,
    /// Rack, from its snitch.
    pub rack: String,
    /// Tokens it owns, ascending.
    pub tokens: Vec<Token>,
    /// Tokens it will own instead when its move is finished, ascending; else empty.
    pub moving_to: Vec<Token>,
    /// Where it stands.
    pub state: MemberState,
    /// The dead member whose place it takes while it joins.
    pub replaces: Option<HostId>,
    /// Shards it has; 0 until it has said so.
    pub shards: u16,
    /// Features it can do, one bit each.
    pub features: u64,
    /// Its release, as drivers see it in `system.peers`; empty until it has said so.
    pub release: String,
}

impl Member {
    /// The tokens this member owns in the ring where its movement is finished or not.
    ///
    /// The member that is replaced is the business of the ring: it goes when its replacement comes.
    pub fn tokens_when(&self, finished: bool) -> &[Token] {
        match (self.state, finished) {
            (MemberState::Joining | MemberState::JoinHandover, false)
            | (MemberState::Leaving | MemberState::LeaveHandover, true) => &[],
            (MemberState::Moving | MemberState::MoveHandover, true) => &self.moving_to,
            _ => &self.tokens,
        }
    }

    /// Returns true if ranges move because of the member.
    pub fn is_in_transition(&self) -> bool {
        self.state != MemberState::Normal
    }

    /// Appends the member.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        out.put_bytes(self.host_id.0.as_bytes());
        put_address(out, self.storage);
        put_address(out, self.rpc);
        out.put_bytes_vint(self.datacenter.as_bytes());
        out.put_bytes_vint(self.rack.as_bytes());
        put_tokens(out, &self.tokens);
        put_tokens(out, &self.moving_to);
        out.put_u8(self.state.code());
        out.put_bool(self.replaces.is_some());
        if let Some(old) = self.replaces {
            out.put_bytes(old.0.as_bytes());
        }
        out.put_u16(self.shards);
        out.put_u64(self.features);
        out.put_bytes_vint(self.release.as_bytes());
    }

    /// Reads a member.
    ///
    /// # Errors
    /// Anything that [`Member::encode`] does not write.
    pub fn decode(r: &mut Reader<'_>) -> Result<Member, DecodeError> {
        let version = r.u8()?;
        if version != VERSION {
            return Err(r.invalid(i64::from(version)));
        }
        let host_id = read_host(r)?;
        let storage = read_address(r)?;
        let rpc = read_address(r)?;
        let datacenter = read_text(r)?;
        let rack = read_text(r)?;
        let tokens = read_tokens(r)?;
        let moving_to = read_tokens(r)?;
        let state = read_state(r)?;
        let replaces = if r.bool()? { Some(read_host(r)?) } else { None };
        let shards = r.u16()?;
        let features = r.u64()?;
        let release = read_text(r)?;
        Ok(Member {
            host_id,
            storage,
            rpc,
            datacenter,
            rack,
            tokens,
            moving_to,
            state,
            replaces,
            shards,
            features,
            release,
        })
    }
}

pub(crate) fn put_state(out: &mut Vec<u8>, state: MemberState) {
    out.put_u8(state.code());
}

pub(crate) fn read_state(r: &mut Reader<'_>) -> Result<MemberState, DecodeError> {
    let code = r.u8()?;
    MemberState::ALL
        .into_iter()
        .find(|s| s.code() == code)
        .ok_or_else(|| r.invalid(i64::from(code)))
}

pub(crate) fn read_host(r: &mut Reader<'_>) -> Result<HostId, DecodeError> {
    Ok(HostId(Uuid::from_bytes(r.array::<16>()?)))
}

fn read_text(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    let bytes = r.bytes_vint()?;
    String::from_utf8(bytes.to_vec()).map_err(|_| r.error(DecodeErrorKind::Utf8))
}

pub(crate) fn put_tokens(out: &mut Vec<u8>, tokens: &[Token]) {
    out.put_vint_unsigned(tokens.len() as u64);
    for token in tokens {
        out.put_i64(token.0);
    }
}

pub(crate) fn read_tokens(r: &mut Reader<'_>) -> Result<Vec<Token>, DecodeError> {
    let n = usize::try_from(r.vint_unsigned()?).unwrap_or(usize::MAX);
    let n = r.check_count(n, 8)?;
    (0..n).map(|_| Ok(Token(r.i64()?))).collect()
}

/// An address: 4 or 6, the bytes of the IP, the port.
pub(crate) fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            out.put_u8(4);
            out.put_bytes(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.put_u8(6);
            out.put_bytes(&ip.octets());
        }
    }
    out.put_u16(address.port());
}

pub(crate) fn read_address(r: &mut Reader<'_>) -> Result<SocketAddr, DecodeError> {
    let ip = match r.u8()? {
        4 => IpAddr::V4(Ipv4Addr::from(r.array::<4>()?)),
        6 => IpAddr::V6(Ipv6Addr::from(r.array::<16>()?)),
        other => return Err(r.invalid(i64::from(other))),
    };
    Ok(SocketAddr::new(ip, r.u16()?))
}

#[cfg(test)]
mod tests;
