//! CIDR groups, changed by administrators: an entry of the metadata log each.

use std::time::Duration;

use cluster::{AuthChange, Transformation};
use membership::{Membership, SubmitError};
use rt::Rt;

/// How long a change is tried again when others are faster.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes the change on the newest metadata. Every live node has it when it returns.
///
/// # Errors
/// Why not, for the administrator.
pub(crate) async fn change(
    rt: &Rt,
    membership: &Membership,
    change: AuthChange,
) -> Result<(), SubmitError> {
    let deadline = rt.now() + PATIENCE;
    let entry = Transformation::Auth(change);
    loop {
        let epoch = membership.snapshot().epoch;
        match membership.submit(epoch, vec![entry.clone()]).await {
            Ok(_) => return Ok(()),
            Err(SubmitError::Conflict(newer))
                if rt.now() < deadline && membership.wait_for(newer, deadline).await => {}
            Err(error) => return Err(error),
        }
    }
}
