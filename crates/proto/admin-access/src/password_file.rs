//! The password file of nodetool (`-pwf`): a line `USER PASSWORD` for each user.

/// Longest file.
pub const FILE_BYTES_MAX: usize = 256 << 10;

/// Returns the password of a user; `None` if the file has none. Words are separated by white space, as Cassandra's tool
/// reads them.
pub fn password_of<'a>(text: &'a str, user: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(user)).then(|| words.next()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_word_of_the_users_line_is_the_password() {
        let text = "bob other\n\n  ann\tsecret ignored\nann later\neve\n";
        assert_eq!(password_of(text, "ann"), Some("secret"));
        assert_eq!(password_of(text, "bob"), Some("other"));
        for user in ["eve", "an", "nobody", ""] {
            assert_eq!(password_of(text, user), None, "{user}");
        }
    }
}
