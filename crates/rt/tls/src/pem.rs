//! PEM sections: label and bytes of each.
//!
//! Lenient where tools differ: text around sections, white space and line lengths inside of them. Text inline in a
//! YAML file may have lost its line breaks.

use crate::error::Problem;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";
/// Most sections of one file.
const SECTIONS_MAX: usize = 10_000;

/// One section.
pub(crate) struct Section<'a> {
    pub(crate) label: &'a str,
    pub(crate) bytes: Vec<u8>,
}

/// Returns true if the bytes contain a PEM section.
pub(crate) fn is_pem(bytes: &[u8]) -> bool {
    bytes.windows(BEGIN.len()).any(|window| window == BEGIN.as_bytes())
}

/// Returns all sections, in their order.
pub(crate) fn sections(bytes: &[u8]) -> Result<Vec<Section<'_>>, Problem> {
    let remedy = "write the file again with openssl or export it again";
    let text = core::str::from_utf8(bytes)
        .map_err(|_| Problem::new("is PEM, but not UTF-8 text", remedy))?;
    let mut sections = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(BEGIN) {
        let number = sections.len() + 1;
        let broken = |what: &str| Problem::new(format!("section {number} {what}"), remedy);
        if number > SECTIONS_MAX {
            return Err(Problem::new(
                format!("has more than {SECTIONS_MAX} sections"),
                "remove what is not needed",
            ));
        }
        let (label, after) =
            after.split_once(DASHES).ok_or_else(|| broken("has no end of its first line"))?;
        let (body, after) =
            after.split_once(END).ok_or_else(|| broken(&format!("({label}) is cut off")))?;
        let (end, after) = after.split_once(DASHES).ok_or_else(|| broken("is cut off"))?;
        if end != label {
            return Err(broken(&format!("begins as {label} and ends as {end}")));
        }
        if body.contains("Proc-Type:") {
            let problem = format!("section {number} ({label}) is encrypted in OpenSSL's old way");
            return Err(Problem::new(problem, "convert the key with \"openssl pkcs8 -topk8\""));
        }
        let bytes =
            base64(body).ok_or_else(|| broken(&format!("({label}) is not valid base64")))?;
        sections.push(Section { label, bytes });
        rest = after;
    }
    Ok(sections)
}

/// Decodes base64; ignores white space.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held, mut padding) = (0_u32, 0_u32, 0_u32);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => {
                padding += 1;
                continue;
            }
            _ => return None,
        };
        if padding > 0 {
            return None;
        }
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held & 0xff) as u8);
            bits &= (1 << held) - 1;
        }
    }
    // Leftover bits must be zero, and padding must fill the last group of four.
    let is_whole = bits == 0
        && match held {
            0 => padding == 0,
            4 => padding == 2,
            2 => padding == 1,
            _ => false,
        };
    is_whole.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded_across_white_space_and_refused_when_cut() {
        assert_eq!(base64("aGVs\n bG8="), Some(b"hello".to_vec()));
        assert_eq!(base64("aGVsbG8"), None);
        assert_eq!(base64("aGVsbG8=="), None);
        assert_eq!(base64("aGVsbG9="), None);
        assert_eq!(base64("aGV*"), None);
        assert_eq!(base64(""), Some(Vec::new()));
    }

    #[test]
    fn sections_may_stand_in_one_line_and_between_text() {
        let text = b"subject=/CN=x\n-----BEGIN A-----aGVs-----END A-----\nand\n-----BEGIN B-----\r\naGVs\r\n-----END B-----";
        let found = sections(text).ok().unwrap();
        let labels: Vec<_> = found.iter().map(|s| (s.label, s.bytes.as_slice())).collect();
        assert_eq!(labels, [("A", b"hel".as_slice()), ("B", b"hel".as_slice())]);
    }

    #[test]
    fn a_section_that_is_cut_or_ends_as_another_is_refused() {
        for (text, problem) in [
            ("-----BEGIN A-----aGVs", "section 1 (A) is cut off"),
            ("-----BEGIN A-----aGVs-----END B-----", "section 1 begins as A and ends as B"),
            ("-----BEGIN A-----aGV-----END A-----", "section 1 (A) is not valid base64"),
        ] {
            assert_eq!(sections(text.as_bytes()).err().unwrap().problem, problem);
        }
    }
}
