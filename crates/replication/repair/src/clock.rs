//! The two clocks of a node.

use rt::Rt;
use stdx::{Instant, WallMicros};

/// Both clocks, read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    pub(crate) instant: Instant,
    pub(crate) wall: WallMicros,
}

impl Clock {
    pub(crate) fn read(rt: &Rt) -> Clock {
        Clock { instant: rt.now(), wall: rt.wall() }
    }
}
