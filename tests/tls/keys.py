"""Keys, certificates and key stores of the tests, made by openssl and by Java's keytool."""
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

PASSWORD = "cassandra"
SERVER_NAMES = "IP:127.0.0.1,DNS:localhost,URI:spiffe://test/node"


class Keys:
    """Files in one directory: NAME.pem (certificate), NAME.key, NAME.p12; authorities `ca` and `other`."""

    def __init__(self, directory):
        self.directory = directory
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True)

    def path(self, name):
        return self.directory / name

    def run(self, *command, **options):
        done = subprocess.run([*map(str, command)], cwd=self.directory, capture_output=True, text=True, **options)
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    def openssl(self, *command, **options):
        return self.run("openssl", *command, **options)

    def keytool(self, *command, **options):
        return self.run("keytool", *command, **options)

    def authority(self, name):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                     "-subj", f"/O=Tests/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem",
                     "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        # For certificates that have expired: only "openssl ca" takes dates.
        self.path(f"{name}.index").write_text("")
        self.path(f"{name}.cnf").write_text(
            f"[ca]\ndefault_ca=d\n[d]\ndatabase={name}.index\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\n"
            "unique_subject=no\npolicy=p\n[p]\ncommonName=supplied\norganizationName=optional\n"
        )

    def sign(self, name, alternatives, authority="ca", dates=("-days", "30")):
        """Signs NAME.csr; with "self" as the authority by its own key."""
        extensions = self.path(f"{name}.ext")
        text = "basicConstraints=critical,CA:FALSE\n"
        extensions.write_text(text + (f"subjectAltName={alternatives}\n" if alternatives else ""))
        files = ["-in", f"{name}.csr", "-extfile", extensions, "-out", f"{name}.pem"]
        if authority == "self":
            self.openssl("x509", "-req", *dates, "-signkey", f"{name}.key", *files)
        else:
            self.openssl("ca", "-batch", "-notext", "-config", f"{authority}.cnf", "-cert", f"{authority}.pem",
                         "-keyfile", f"{authority}.key", *dates, *files)

    def certificate(self, name, alternatives, **how):
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                     "-subj", f"/O=Tests/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        self.sign(name, alternatives, **how)
        self.openssl("pkcs12", "-export", "-inkey", f"{name}.key", "-in", f"{name}.pem", "-name", "key",
                     "-passout", f"pass:{PASSWORD}", "-out", f"{name}.p12")

    def keytool_store(self, name, kind, other_kind, *algorithm):
        """A key of keytool, certified by the authority, in a store of each kind."""
        store = ["-keystore", f"{name}.{kind}", "-storetype", kind, "-storepass", PASSWORD]
        self.keytool("-genkeypair", "-alias", "key", *algorithm, "-dname", f"CN={name}, O=Tests", *store,
                     "-keypass", PASSWORD)
        self.keytool("-certreq", "-alias", "key", "-file", f"{name}.csr", *store)
        self.sign(name, SERVER_NAMES)
        self.keytool("-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem", *store)
        self.keytool("-importcert", "-noprompt", "-alias", "key", "-file", f"{name}.pem", *store)
        self.keytool("-importkeystore", "-srckeystore", f"{name}.{kind}", "-srcstorepass", PASSWORD,
                     "-destkeystore", f"{name}.{other_kind}", "-deststoretype", other_kind,
                     "-deststorepass", PASSWORD, "-destkeypass", PASSWORD)

    def trust_store(self, kind):
        self.keytool("-importcert", "-noprompt", "-trustcacerts", "-alias", "ca", "-file", "ca.pem",
                     "-keystore", f"trust.{kind}", "-storetype", kind, "-storepass", PASSWORD)

    def make(self):
        expired = ("-startdate", "20200101000000Z", "-enddate", "20210101000000Z")
        self.authority("ca")
        self.authority("other")
        # One after the other where "openssl ca" writes its index.
        self.certificate("elsewhere", "DNS:elsewhere.example")
        self.certificate("server-expired", SERVER_NAMES, dates=expired)
        early = ("-startdate", "20980101000000Z", "-enddate", "20990101000000Z")
        self.certificate("server-early", SERVER_NAMES, dates=early)
        self.certificate("server-ending", SERVER_NAMES, dates=("-days", "5"))
        self.certificate("server-other", SERVER_NAMES, authority="other")
        self.certificate("server-self", SERVER_NAMES, authority="self")
        self.certificate("server", SERVER_NAMES)
        self.certificate("app", "DNS:app.example,URI:spiffe://test/app,URI:role:app")
        self.certificate("local", "IP:127.0.0.1,URI:spiffe://test/app")
        self.certificate("unknown", "URI:spiffe://test/unknown")
        self.certificate("nameless", None)
        self.certificate("expired", "URI:spiffe://test/app", dates=expired)
        self.certificate("stranger", "URI:spiffe://test/app", authority="other")
        self.certificate("self", "URI:spiffe://test/app", authority="self")
        self.certificate("operator", "URI:spiffe://test/operator")
        self.keytool_store("server-ec", "PKCS12", "JKS", "-keyalg", "EC", "-groupname", "secp256r1")
        self.keytool_store("server-rsa", "JKS", "PKCS12", "-keyalg", "RSA", "-keysize", "2048")
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self.trust_store, ["JKS", "PKCS12"]))
        export = ["pkcs12", "-export", "-inkey", "server.key", "-in", "server.pem", "-certfile", "ca.pem",
                  "-passout", f"pass:{PASSWORD}"]
        self.openssl(*export, "-out", "server-modern.PKCS12")
        self.openssl(*export, "-legacy", "-out", "server-legacy.PKCS12")
        # The second is all that a Cassandra on Java 17 reads.
        chain = self.path("server.pem").read_text() + self.path("ca.pem").read_text()
        for name, scheme in [("server-pbes2", ["-v2", "aes-256-cbc"]), ("server-pbes1", ["-v1", "PBE-SHA1-3DES"])]:
            key = self.openssl("pkcs8", "-topk8", *scheme, "-passout", f"pass:{PASSWORD}", "-in", "server.key")
            self.path(f"{name}.chain").write_text(key + chain)
        return self
