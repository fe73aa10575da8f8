//! bcrypt hashes of passwords, in Cassandra's form. Each takes tens of milliseconds: only the pool calls these.

/// Rounds as a power of two, Cassandra's default.
pub const COST: u32 = 10;
/// Fewest and most rounds of a stored hash that jBCrypt accepts, as powers of two.
pub const COSTS: core::ops::RangeInclusive<u32> = 4..=31;
/// Salt of the hashes that match no password.
const DUMMY_SALT: [u8; 16] = *b"no role has this";

/// Hashes a password.
///
/// # Errors
/// The cost is outside of [`COSTS`], or bcrypt refuses the password.
pub fn hash(password: &str, cost: u32, salt: [u8; 16]) -> Result<String, String> {
    let parts = bcrypt::hash_with_salt(password, cost, salt).map_err(|error| error.to_string())?;
    Ok(parts.format_for_version(bcrypt::Version::TwoA))
}

/// Returns true if a password has this stored hash. Without a usable hash it takes as long as
/// with one of this cost and returns false, so that the time does not reveal whether the role
/// exists.
pub fn matches(password: &str, stored: Option<&str>, cost_otherwise: u32) -> bool {
    match stored.map(|stored| bcrypt::verify(password, stored)) {
        Some(Ok(is_right)) => is_right,
        Some(Err(_)) | None => {
            // The result is not needed, the time is.
            let _ = std::hint::black_box(hash(password, cost_otherwise, DUMMY_SALT));
            false
        }
    }
}

/// Returns the cost in a stored hash: `$2a$10$…` has 10.
pub fn cost_of(stored: &str) -> Option<u32> {
    let cost = stored.strip_prefix("$2")?.get(2..)?.split('$').next()?;
    cost.parse().ok().filter(|cost| COSTS.contains(cost))
}

/// Returns the cost that most stored hashes have, the lower of two equally frequent ones;
/// [`COST`] without hashes.
pub fn usual_cost<'a>(stored: impl Iterator<Item = &'a str>) -> u32 {
    let mut counts = [0_u32; 32];
    for cost in stored.filter_map(cost_of) {
        if let Some(count) = counts.get_mut(cost as usize) {
            *count = count.saturating_add(1);
        }
    }
    let most = counts.iter().max().copied().filter(|most| *most > 0);
    most.and_then(|most| counts.iter().position(|count| *count == most))
        .and_then(|cost| u32::try_from(cost).ok())
        .unwrap_or(COST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_matches_its_hash_only() {
        let stored = hash("secret", 4, [7; 16]).unwrap();
        assert!(stored.starts_with("$2a$04$"), "{stored}");
        assert!(matches("secret", Some(&stored), 4));
        assert!(!matches("Secret", Some(&stored), 4));
        assert!(!matches("secret", Some("not a hash"), 4));
        assert!(!matches("secret", None, 4));
        // Not even the password of the dummy hash.
        let dummy = hash("secret", 4, DUMMY_SALT).unwrap();
        assert!(!matches(&dummy, None, 4));
    }

    #[test]
    fn the_usual_cost_is_the_most_frequent_one() {
        let of = |hashes: &[&str]| usual_cost(hashes.iter().copied());
        assert_eq!(of(&[]), COST);
        assert_eq!(of(&["", "x", "$2a$99$a", "$2a$"]), COST);
        assert_eq!(of(&["$2a$12$a", "$2b$10$a", "$2a$12$b"]), 12);
        assert_eq!(of(&["$2a$12$a", "$2a$04$b"]), 4);
        assert_eq!(cost_of("$2a$31$a"), Some(31));
        assert_eq!(cost_of("$2a$32$a"), None);
    }
}
