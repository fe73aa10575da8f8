"""What a server offers, as openssl finds it: protocols, cipher suites, compression, renegotiation."""
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

SUITES_13 = ["TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256",
             "TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"]
OLD = [("-tls1", "TLSv1"), ("-tls1_1", "TLSv1.1")]


def connect(address, *flags):
    """The output of one handshake; empty if it failed."""
    done = subprocess.run(["openssl", "s_client", "-connect", address, *flags], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 and "Cipher is (NONE)" not in done.stdout else ""


def suites_12():
    """Every suite that openssl can speak up to TLS 1.2: the standard's name, openssl's name."""
    done = subprocess.run(["openssl", "ciphers", "-s", "-stdname", "-tls1_2", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"],
                          capture_output=True, text=True, check=True)
    lines = [line.split(" - ") for line in done.stdout.splitlines()]
    return [(standard.strip(), name.split()[0]) for standard, name in lines]


def offer(address, *flags):
    """Names of protocols and suites with which a handshake succeeds."""
    tries = [(f"TLSv1.3 {suite}", ["-tls1_3", "-ciphersuites", suite]) for suite in SUITES_13]
    tries += [(f"TLSv1.2 {standard}", ["-tls1_2", "-cipher", f"{name}:@SECLEVEL=0"]) for standard, name in suites_12()]
    tries += [(name, [flag, "-cipher", "ALL:@SECLEVEL=0"]) for flag, name in OLD]
    with ThreadPoolExecutor(4) as pool:
        outcomes = pool.map(lambda each: connect(address, *each[1], *flags), tries)
        return len(tries), [name for (name, _), output in zip(tries, outcomes) if output]


def subject(address, *flags):
    """Common name of the certificate that the server shows; None if it shows none."""
    for line in connect(address, *flags).splitlines():
        if line.startswith("subject="):
            return line.rpartition("CN = ")[2].split(",")[0]
    return None


def renegotiation(address, *flags):
    """Whether the server agrees to a second handshake on a connection of TLS 1.2."""
    process = subprocess.Popen(["openssl", "s_client", "-connect", address, "-tls1_2", *flags],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        lines = []
        # The end of what is printed about the first handshake.
        for line in process.stdout:
            lines.append(line)
            if "Extended master secret" in line:
                break
        process.stdin.write("R\n")
        process.stdin.flush()
        end = time.monotonic() + 60
        for line in process.stdout:
            lines.append(line)
            if "no renegotiation" in line or "error:" in line:
                return "refused"
            # The chain is verified once more.
            if "verify return" in line:
                return "accepted"
            if time.monotonic() > end:
                break
        return "unclear: " + "".join(lines[-5:])
    finally:
        process.kill()
        process.wait()
