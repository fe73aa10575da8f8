//! Paxos without IO.
