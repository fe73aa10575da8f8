//! Routes the items of a partition to windows of the first clustering column, for cluster-key
//! compaction.
//!
//! Rows are routed to the window of their first clustering value. A range deletion is cut at the borders
//! of windows: each window within which it begins or ends, or has rows, gets its piece; whole windows
//! between these are deleted in the shared file, in one piece each time, however many they are. Together
//! the pieces delete what the whole one did. Positions within a window are written with values of that
//! window, so that statistics name no other. Shared data stays shared when it is sorted again.
//!
//! INV-routing-1: the items of one place are in order, and every range that opens there closes there
//! within the partition.

use compact_plan::Windows;
use data::clustering::{components, push_component};
use data::{BoundRef, DeletionTime, Marker};

/// Destination of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Data in no window, or in several.
    Shared,
    /// The window of this number.
    Window(i64),
}

/// A marker for one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) place: Place,
    prefix: Vec<u8>,
    after: bool,
    close: Option<DeletionTime>,
    open: Option<DeletionTime>,
}

impl Piece {
    pub(crate) fn marker(&self) -> Marker<'_> {
        Marker {
            position: BoundRef { prefix: &self.prefix, after: self.after },
            close: self.close,
            open: self.open,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// The open range, if any.
enum Range {
    None,
    /// It opens, or continues, at this position, which is not written yet: its destination depends
    /// on the next items.
    Begun {
        prefix: Vec<u8>,
        after: bool,
        deletion: DeletionTime,
        /// The deletion that ends there in the shared file; not written yet either.
        closes: Option<DeletionTime>,
    },
    /// It is open at this destination.
    Open(Place, DeletionTime),
}

/// Deletions that end and begin at a position.
#[derive(Clone, Copy)]
struct Change {
    close: Option<DeletionTime>,
    open: Option<DeletionTime>,
}

/// See the module. One for all partitions of a merge, in order.
pub(crate) struct Router {
    windows: Windows,
    /// True if the first clustering column descends.
    reversed: bool,
    range: Range,
}

impl Router {
    pub(crate) fn new(windows: Windows, reversed: bool) -> Router {
        Router { windows, reversed, range: Range::None }
    }

    /// A new partition begins.
    pub(crate) fn partition(&mut self) {
        stdx::debug_invariant!(matches!(self.range, Range::None), "routing: a range is open");
        self.range = Range::None;
    }

    /// Returns the destination of a row, and appends the pieces that must be written before it.
    pub(crate) fn row(&mut self, clustering: &[u8], pieces: &mut Vec<Piece>) -> Place {
        let place = match self.value(clustering) {
            Some((value, _)) => Place::Window(self.windows.window_of(value)),
            None => Place::Shared,
        };
        self.move_to(place, pieces);
        place
    }

    /// Appends the pieces of a marker.
    pub(crate) fn marker(&mut self, marker: &Marker<'_>, pieces: &mut Vec<Piece>) {
        let at = marker.position;
        if self.is_without_values(at) {
            self.end_unwritten(pieces);
        }
        let is_closed = marker.close.is_some() && !matches!(self.range, Range::None);
        let mut closes = None;
        let mut next = Range::None;
        if is_closed {
            let place = self.place_of_end(at);
            self.move_to(place, pieces);
            // Within one destination one marker ends a range and begins the next one.
            let here = marker.open.filter(|_| self.place(at) == Some(place));
            match (here, marker.open, place) {
                (None, Some(_), Place::Shared) => closes = marker.close,
                _ => {
                    let change = Change { close: marker.close, open: here };
                    self.push(pieces, place, Side::Left, at, change);
                }
            }
            if let Some(deletion) = here {
                next = Range::Open(place, deletion);
            }
        }
        if let (Some(deletion), Range::None) = (marker.open, &next) {
            next = Range::Begun { prefix: at.prefix.to_vec(), after: at.after, deletion, closes };
        }
        self.range = next;
    }

    /// Forgets a range that has begun.
    fn end_unwritten(&mut self, pieces: &mut Vec<Piece>) {
        let range = std::mem::replace(&mut self.range, Range::None);
        if let Range::Begun { prefix, after, closes: closes @ Some(_), .. } = range {
            pieces.push(Piece { place: Place::Shared, prefix, after, close: closes, open: None });
        }
    }

    /// Returns where a range open at a position ends: at a border in the window before it, if the
    /// range is open in that window.
    fn place_of_end(&self, at: BoundRef<'_>) -> Place {
        let now = match &self.range {
            Range::Open(place, _) => Some(*place),
            Range::Begun { prefix, after, .. } => self.place(BoundRef { prefix, after: *after }),
            Range::None => None,
        };
        let before = self.value_at(at, Side::Left).map(|value| self.windows.window_of(value));
        match (self.place(at), before) {
            (Some(place), _) => place,
            (None, Some(window)) if now == Some(Place::Window(window)) => Place::Window(window),
            (None, _) => Place::Shared,
        }
    }

    /// Returns true if no value lies between the position at which a range opened and this one, as
    /// between "after 1" and "before 2".
    fn is_without_values(&self, end: BoundRef<'_>) -> bool {
        let Range::Begun { prefix, after, .. } = &self.range else { return false };
        let begin = BoundRef { prefix, after: *after };
        match (self.value_at(begin, Side::Right), self.value_at(end, Side::Left)) {
            (Some(first), Some(last)) if self.reversed => last > first,
            (Some(first), Some(last)) => last < first,
            _ => false,
        }
    }

    /// The first value of a clustering or prefix, and whether there is no other.
    fn value(&self, prefix: &[u8]) -> Option<(i64, bool)> {
        let mut parts = components(prefix);
        let value = self.windows.value(parts.next()??)?;
        Some((value, parts.next().is_none()))
    }

    /// The value at a side of a position; `None` where no window is.
    fn value_at(&self, at: BoundRef<'_>, side: Side) -> Option<i64> {
        let (value, is_alone) = self.value(at.prefix)?;
        match (side, at.after) {
            (Side::Left, false) if is_alone => self.neighbour(value, self.reversed),
            (Side::Right, true) if is_alone => self.neighbour(value, !self.reversed),
            _ => Some(value),
        }
    }

    fn neighbour(&self, value: i64, behind: bool) -> Option<i64> {
        if behind { self.windows.behind(value) } else { self.windows.before(value) }
    }

    /// Where a position lies; `None`: at a border of windows, which is in none of them.
    fn place(&self, at: BoundRef<'_>) -> Option<Place> {
        let window = |side| self.value_at(at, side).map(|value| self.windows.window_of(value));
        match (window(Side::Left), window(Side::Right)) {
            (None, None) => Some(Place::Shared),
            (Some(left), Some(right)) if left == right => Some(Place::Window(left)),
            _ => None,
        }
    }

    fn prefix(&self, value: i64) -> Vec<u8> {
        let mut prefix = Vec::new();
        push_component(&mut prefix, Some(&self.windows.serialized(value)));
        prefix
    }

    fn first_in_order(&self, window: i64) -> i64 {
        match self.reversed {
            false => self.windows.first_of(window),
            true => self.windows.last_of(window),
        }
    }

    /// Where a window begins, in the order of the table.
    fn begin(&self, window: i64) -> (Vec<u8>, bool) {
        (self.prefix(self.first_in_order(window)), false)
    }

    /// Where it ends.
    fn end(&self, window: i64) -> (Vec<u8>, bool) {
        let value = match self.reversed {
            false => self.windows.last_of(window),
            true => self.windows.first_of(window),
        };
        (self.prefix(value), true)
    }

    fn push(
        &self,
        pieces: &mut Vec<Piece>,
        place: Place,
        side: Side,
        at: BoundRef<'_>,
        change: Change,
    ) {
        let Change { close, open } = change;
        let (mut prefix, mut after) = (at.prefix.to_vec(), at.after);
        // "Before the first value of the next window" is "after the last one of this".
        if let (Place::Window(window), Some((value, true))) = (place, self.value(at.prefix))
            && self.windows.window_of(value) != window
            && let Some(inside) = self.value_at(at, side)
        {
            (prefix, after) = (self.prefix(inside), side == Side::Left);
        }
        pieces.push(Piece { place, prefix, after, close, open });
    }

    /// Moves the open range to another, later destination.
    fn move_to(&mut self, to: Place, pieces: &mut Vec<Piece>) {
        if let Range::Open(from @ Place::Window(window), deletion) = self.range
            && from != to
        {
            let (prefix, after) = self.end(window);
            let (at, close) = (prefix.clone(), Some(deletion));
            pieces.push(Piece { place: from, prefix: at, after, close, open: None });
            self.range = Range::Begun { prefix, after, deletion, closes: None };
        }
        if let Range::Begun { prefix, after, deletion, closes } = &self.range {
            let (at, deletion) = (BoundRef { prefix, after: *after }, *deletion);
            let first = self.value_at(at, Side::Right);
            let begins = |window| first == Some(self.first_in_order(window));
            let place = match (self.place(at), to) {
                (Some(place), _) => place,
                // No whole window lies before it.
                (None, Place::Window(window)) if begins(window) => to,
                (None, _) => Place::Shared,
            };
            let mut closes = *closes;
            if place != Place::Shared
                && let Some(close) = closes.take()
            {
                let change = Change { close: Some(close), open: None };
                self.push(pieces, Place::Shared, Side::Left, at, change);
            }
            let change = Change { close: closes, open: Some(deletion) };
            self.push(pieces, place, Side::Right, at, change);
            self.range = Range::Open(place, deletion);
        }
        match (&self.range, to) {
            (Range::Open(from, _), _) if *from == to => {}
            (Range::Open(Place::Shared, deletion), Place::Window(window)) => {
                let deletion = *deletion;
                let (prefix, after) = self.begin(window);
                let (at, close) = (prefix.clone(), Some(deletion));
                pieces.push(Piece { place: Place::Shared, prefix: at, after, close, open: None });
                let open = Some(deletion);
                pieces.push(Piece { place: to, prefix, after, close: None, open });
                self.range = Range::Open(to, deletion);
            }
            // It began within a window.
            (Range::Open(Place::Window(_), _), _) => self.move_to(to, pieces),
            (Range::Open(Place::Shared, _), Place::Shared) => {}
            (Range::None | Range::Begun { .. }, _) => {}
        }
    }
}

#[cfg(test)]
mod tests;
