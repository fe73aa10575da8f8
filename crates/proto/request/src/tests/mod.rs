//! Tables of inputs and outputs, random schedules with checked invariants, laws of reconciliation.

mod batches;
mod filtered;
mod ranges;
mod read_simulation;
mod reads;
mod reconciling;
mod searches;
mod speculating;
mod world;
mod writes;
