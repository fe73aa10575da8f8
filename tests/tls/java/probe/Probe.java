package probe;

import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.CqlSessionBuilder;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.ssl.ProgrammaticSslEngineFactory;
import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Probe of the Java driver: see ../README.md for its requests and answers. */
public final class Probe {
  private static final char[] PASSWORD = "cassandra".toCharArray();

  private CqlSession open;
  private volatile boolean stopped;
  private CompletableFuture<String> running;

  private static SSLContext context(Map<String, String> request) throws Exception {
    KeyStore trusted = KeyStore.getInstance("PKCS12");
    trusted.load(null, null);
    try (InputStream file = Files.newInputStream(Path.of(request.get("ca")))) {
      for (Certificate found : CertificateFactory.getInstance("X.509").generateCertificates(file)) {
        trusted.setCertificateEntry("ca" + trusted.size(), found);
      }
    }
    TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(trusted);
    KeyManagerFactory keys = null;
    if (request.containsKey("p12")) {
      KeyStore own = KeyStore.getInstance("PKCS12");
      try (InputStream file = Files.newInputStream(Path.of(request.get("p12")))) {
        own.load(file, PASSWORD);
      }
      keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
      keys.init(own, PASSWORD);
    }
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(keys == null ? null : keys.getKeyManagers(), trust.getTrustManagers(), null);
    return context;
  }

  private static CqlSession connect(Map<String, String> request) throws Exception {
    DriverConfigLoader config =
        DriverConfigLoader.programmaticBuilder()
            .withDuration(DefaultDriverOption.CONNECTION_CONNECT_TIMEOUT, Duration.ofSeconds(10))
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, Duration.ofSeconds(10))
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(30))
            .withDuration(DefaultDriverOption.NETTY_IO_SHUTDOWN_QUIET_PERIOD, Duration.ZERO)
            .withDuration(DefaultDriverOption.NETTY_ADMIN_SHUTDOWN_QUIET_PERIOD, Duration.ZERO)
            .build();
    CqlSessionBuilder builder =
        CqlSession.builder()
            .addContactPoint(new InetSocketAddress(request.get("host"), Integer.parseInt(request.get("port"))))
            .withLocalDatacenter(request.get("dc"))
            .withConfigLoader(config);
    if (request.get("tls").equals("yes")) {
      boolean check = "check".equals(request.get("name"));
      builder.withSslEngineFactory(new ProgrammaticSslEngineFactory(context(request), null, check));
    }
    if (request.containsKey("user")) {
      builder.withAuthCredentials(request.get("user"), request.get("password"));
    }
    return builder.build();
  }

  private static String query(CqlSession session) {
    return session.execute("SELECT key FROM system.local").one().getString(0);
  }

  private String load(Map<String, String> request) {
    int done = 0;
    List<String> failures = new ArrayList<>();
    while (!stopped) {
      try (CqlSession session = connect(request)) {
        for (int i = 0; i < 20; i++) {
          query(session);
          done++;
        }
      } catch (Exception error) {
        failures.add(text(error));
      }
    }
    return done + " " + failures.size() + " " + (failures.isEmpty() ? "" : failures.get(0));
  }

  private String answer(String verb, Map<String, String> request) throws Exception {
    switch (verb) {
      case "try":
        try (CqlSession session = connect(request)) {
          return query(session);
        }
      case "open":
        open = connect(request);
        return "";
      case "close":
        open.close();
        return "";
      case "load":
        stopped = false;
        running = CompletableFuture.supplyAsync(() -> load(request));
        return "";
      case "stop":
        stopped = true;
        return running.get();
      default:
        throw new IllegalArgumentException("no request " + verb);
    }
  }

  /** The causes too: the driver hides what failed in a handshake. */
  private static String text(Throwable error) {
    StringBuilder text = new StringBuilder();
    List<Throwable> causes = new ArrayList<>();
    if (error instanceof AllNodesFailedException) {
      ((AllNodesFailedException) error).getAllErrors().values().forEach(causes::addAll);
    }
    causes.add(error);
    for (Throwable each : causes) {
      for (Throwable cause = each; cause != null; cause = cause.getCause()) {
        text.append(cause).append("; ");
      }
    }
    return text.toString();
  }

  public static void main(String[] args) throws Exception {
    Probe probe = new Probe();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] fields = line.split("\t");
      Map<String, String> request = new HashMap<>();
      for (int i = 1; i < fields.length; i++) {
        int at = fields[i].indexOf('=');
        request.put(fields[i].substring(0, at), fields[i].substring(at + 1));
      }
      String text;
      try {
        text = "ok " + probe.answer(fields[0], request);
      } catch (Exception error) {
        text = "error " + text(error);
      }
      System.out.println(text.replace('\n', ' '));
    }
    System.exit(0);
  }
}
