//! One request of HTTP/1.1 and its answer, as bytes: for tools that call the administrative API, and `key-client`.
//!
//! Owns: the head of a request, the parts of an answer (length, chunks, end of the connection).
//! Never: sockets, the meaning of a body. The driver of tools that block is in `blocking-client`.

/// One request. The connection ends after its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Method.
    pub method: &'a str,
    /// Path with its query.
    pub path: &'a str,
    /// Value of the `Authorization` header.
    pub authorization: Option<&'a str>,
    /// Content type and bytes.
    pub body: Option<(&'a str, &'a [u8])>,
}

/// Content type of JSON.
pub const JSON: &str = "application/json";
/// Content type of bytes.
pub const OCTETS: &str = "application/octet-stream";

impl Request<'_> {
    /// Status line and headers.
    pub fn head(&self, host: &str, port: u16) -> String {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        self.head_with(&format!("{host}:{port}"), &[])
    }

    /// Status line and headers, with more of them: names and values of printable ASCII. `authority`: the value of
    /// `Host`.
    pub fn head_with(&self, authority: &str, headers: &[(&str, &str)]) -> String {
        let Request { method, path, authorization, body } = self;
        let about_body = match body {
            Some((kind, body)) => {
                format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len())
            }
            None => String::new(),
        };
        let login = authorization.map(|value| format!("Authorization: {value}\r\n"));
        let mut login = login.unwrap_or_default();
        for (name, value) in headers {
            login.push_str(&format!("{name}: {value}\r\n"));
        }
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n{login}{about_body}\r\n"
        )
    }
}

/// Status and body of a whole answer, chunks put together.
///
/// # Errors
/// Description of the error.
pub fn split_answer(answer: &[u8]) -> Result<(u16, Vec<u8>), String> {
    if answer.is_empty() {
        return Err("the node ended before it answered; its log says why".to_owned());
    }
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(|| {
        "the answer is not HTTP or was cut off; the port must be that of the API (api_port)"
            .to_owned()
    })?;
    let (head, body) = answer.split_at(end);
    let body = body.get(4..).unwrap_or(&[]);
    let head = std::str::from_utf8(head).map_err(|e| e.to_string())?;
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .filter(|line| line.starts_with("HTTP/1."))
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| "the answer is not HTTP".to_owned())?;
    let (mut chunked, mut length) = (false, None);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = value.eq_ignore_ascii_case("chunked");
        } else if name.eq_ignore_ascii_case("content-length") {
            length = value.parse::<usize>().ok();
        }
    }
    if chunked {
        return Ok((status, joined_chunks(body)?));
    }
    let body = match length {
        Some(length) => body.get(..length).ok_or_else(|| "the answer was cut off".to_owned())?,
        None => body,
    };
    Ok((status, body.to_vec()))
}

fn joined_chunks(mut rest: &[u8]) -> Result<Vec<u8>, String> {
    let cut_off = || "the answer was cut off".to_owned();
    let mut out = Vec::new();
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n").ok_or_else(cut_off)?;
        let (line, after) = rest.split_at(end);
        let digits = line.split(|b| *b == b';').next().unwrap_or(line);
        let text = std::str::from_utf8(digits).map_err(|e| e.to_string())?;
        let length = usize::from_str_radix(text.trim(), 16).map_err(|e| e.to_string())?;
        let after = after.get(2..).ok_or_else(cut_off)?;
        if length == 0 {
            return Ok(out);
        }
        out.extend_from_slice(after.get(..length).ok_or_else(cut_off)?);
        rest = after.get(length.saturating_add(2)..).ok_or_else(cut_off)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_found_with_a_length_in_chunks_and_up_to_the_end() {
        let cases: [&[u8]; 3] = [
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
            b"HTTP/1.0 200 OK\r\n\r\nhello",
        ];
        for answer in cases {
            assert_eq!(split_answer(answer), Ok((200, b"hello".to_vec())));
        }
        let empty: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(split_answer(empty), Ok((404, Vec::new())));
    }

    #[test]
    fn an_answer_that_is_cut_off_is_an_error_at_every_length() {
        let whole: &[u8] =
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n";
        assert!(split_answer(whole).is_ok());
        for length in 0..whole.len() - 1 {
            assert!(split_answer(&whole[..length]).is_err(), "{length}");
        }
        let huge: &[u8] =
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nx";
        assert!(split_answer(huge).is_err());
        assert!(split_answer(b"SSH-2.0-x\r\n\r\n").is_err());
    }

    #[test]
    fn ipv6_hosts_stand_in_brackets_and_a_login_is_a_header() {
        let body: Option<(&str, &[u8])> = Some((JSON, b"{}"));
        let request = Request { method: "POST", path: "/x", authorization: Some("Bearer t"), body };
        let head = request.head("::1", 10_000);
        assert!(head.contains("\r\nAuthorization: Bearer t\r\n"), "{head}");
        assert!(head.contains("\r\nHost: [::1]:10000\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Length: 2\r\n") && head.ends_with("\r\n\r\n"));
    }
}
