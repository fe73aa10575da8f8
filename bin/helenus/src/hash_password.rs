//! `helenus hash_password`: hashes a password for `WITH HASHED PASSWORD`, as Cassandra's bin/hash_password.

use std::fs::File;
use std::io::{Read, stdin};
use std::path::PathBuf;

use clap::Args;
use logins::password;
use tool_io::{complain_line, exit, say};

/// Longest input.
const INPUT_BYTES_MAX: u64 = 1 << 20;
/// Most rounds, as a power of two; jBCrypt hashes with no more.
const ROUNDS_MAX: u32 = 30;
/// Rounds from which on a login takes seconds.
const ROUNDS_HIGH: u32 = 16;
/// Bytes that bcrypt compares.
const BYTES_COMPARED: usize = 72;

/// Options of Cassandra's tool.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Use value of the specified environment variable as the password
    #[arg(short, long, value_name = "NAME", group = "source")]
    environment_var: Option<String>,
    /// Argument is the plain text password
    #[arg(short, long, value_name = "PASSWORD", group = "source", allow_hyphen_values = true)]
    plain: Option<String>,
    /// Input is a file (or - for stdin) to read the password from; its trailing newline is part of the password
    #[arg(short, long, value_name = "FILE", group = "source")]
    input: Option<PathBuf>,
    /// Number of hash rounds, as a power of two
    #[arg(short = 'r', long, default_value_t = password::COST)]
    logrounds: u32,
}

/// Prints the hash; returns the exit code.
pub fn main(arguments: Arguments) -> u8 {
    match run(&arguments) {
        Ok(hash) => {
            say!("{hash}");
            exit::OK
        }
        Err(message) => {
            complain_line!("{message}");
            exit::FAILED
        }
    }
}

fn run(arguments: &Arguments) -> Result<String, String> {
    let plain = plain(arguments)?;
    for warning in warnings(&plain) {
        complain_line!("WARNING: {warning}");
    }
    let rounds = arguments.logrounds;
    if !(*password::COSTS.start()..=ROUNDS_MAX).contains(&rounds) {
        return Err(format!(
            "Bad value for --logrounds {rounds}. Please use a value between 4 and 30 inclusively"
        ));
    }
    if rounds > ROUNDS_HIGH {
        complain_line!(
            "WARNING: Using a high number of hash rounds, as configured using '--logrounds {rounds}' will consume \
             a lot of CPU and likely cause timeouts. Note that the parameter defines the logarithmic number of \
             rounds: {rounds} becomes 2^{rounds} = {} rounds",
            1_u64 << rounds
        );
    }
    let mut salt = [0; 16];
    let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut salt));
    random.map_err(|error| format!("cannot read /dev/urandom: {error}"))?;
    password::hash(&plain, rounds, salt)
        .map_err(|error| format!("cannot hash the password: {error}"))
}

fn plain(arguments: &Arguments) -> Result<String, String> {
    if let Some(name) = &arguments.environment_var {
        return std::env::var(name)
            .map_err(|_| format!("Environment variable '{name}' is undefined."));
    }
    if let Some(plain) = &arguments.plain {
        return Ok(plain.clone());
    }
    let Some(input) = &arguments.input else {
        return Err(
            "One of the options --environment-var, --plain or --input must be used.".to_owned()
        );
    };
    let mut bytes = Vec::new();
    let read = match input.as_os_str() == "-" {
        true => stdin().take(INPUT_BYTES_MAX).read_to_end(&mut bytes),
        false => {
            File::open(input).and_then(|file| file.take(INPUT_BYTES_MAX).read_to_end(&mut bytes))
        }
    };
    read.map_err(|error| format!("Failed to read from '{}': {error}", input.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn warnings(plain: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    if plain.chars().any(|c| u32::from(c) < 32) {
        warnings.push(
            "The provided plain text password contains non-printable characters (ASCII<32)."
                .to_owned(),
        );
    }
    if plain.encode_utf16().count() < 4 {
        warnings.push(
            "The provided password is very short, probably too short to be secure.".to_owned(),
        );
    }
    if plain.len() > BYTES_COMPARED {
        warnings.push(format!(
            "The provided password has a length of {} bytes, but the underlying hash/crypt algorithm (bcrypt) can \
             only compare up to 72 bytes. The password will be accepted and work, but only compared up to 72 bytes.",
            plain.len()
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(plain: &str, logrounds: u32) -> Result<String, String> {
        let plain = Some(plain.to_owned());
        run(&Arguments { environment_var: None, plain, input: None, logrounds })
    }

    #[test]
    fn the_hash_is_one_that_a_role_can_have() {
        let hash = of("secret", 4).unwrap();
        assert!(hash.starts_with("$2a$04$") && hash.len() == 60, "{hash}");
        assert!(password::matches("secret", Some(&hash), 4));
        // Two runs have two salts.
        assert_ne!(hash, of("secret", 4).unwrap());
    }

    #[test]
    fn rounds_outside_of_the_bounds_are_refused() {
        for rounds in [3, 31] {
            let expected = format!(
                "Bad value for --logrounds {rounds}. Please use a value between 4 and 30 inclusively"
            );
            assert_eq!(of("secret", rounds), Err(expected));
        }
    }

    #[test]
    fn weak_passwords_are_warned_of() {
        assert_eq!(warnings("long enough").len(), 0);
        assert_eq!(warnings("abcd").len(), 0);
        assert!(warnings("abc")[0].contains("very short"));
        assert!(warnings("abcd\n")[0].contains("non-printable"));
        assert_eq!(warnings(&"x".repeat(72)).len(), 0);
        assert!(warnings(&"x".repeat(73))[0].contains("length of 73 bytes"));
    }
}
