//! Coordinator machines without IO.
