//! Tokens, TLS, limits and the clean stop, as users meet them: the real binary, real sockets, the real command line.

mod support;

#[expect(clippy::unwrap_used, reason = "a test may fail by panicking")]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output};

    use haul_client::resp::Frame;
    use haul_client::{Client, Options, Pop, Put, Tls};
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    use crate::support::{PATIENCE, Refused, Server, eventually};

    fn serve(data: &Path, extra: &[&str]) -> Result<Server, Refused> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(["serve", "--data"]).arg(data).args(extra).env_remove("HAUL_LOG");
        Server::spawn(command)
    }

    /// With both ports, of the system's choosing.
    fn serve_both(data: &Path, extra: &[&str]) -> Server {
        let ports = ["--redis", "127.0.0.1:0", "--http", "127.0.0.1:0"];
        serve(data, &[ports.as_slice(), extra].concat()).unwrap()
    }

    fn http_address(server: &Server) -> String {
        let log = server.log();
        log.split("http=").nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
    }

    fn haul(args: &[&str], env: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        for name in ["HAUL_TOKEN", "HAUL_SERVER", "HAUL_DATA", "HAUL_TENANT"] {
            command.env_remove(name);
        }
        command.args(args).envs(env.iter().copied()).output().unwrap()
    }

    /// Runs it, checks the exit code, answers what it printed.
    fn says(args: &[&str], env: &[(&str, &str)], code: i32) -> String {
        let output = haul(args, env);
        let (out, err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(code), "haul {args:?}: {out}{err}");
        format!("{out}{err}").trim_end().to_owned()
    }

    /// Sends bytes and reads until the server closes.
    fn exchange(address: &str, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // A server that has heard enough may close before it has read all.
        drop(stream.write_all(bytes));
        let mut text = Vec::new();
        drop(stream.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    }

    fn get(address: &str, path: &str, headers: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}\r\n");
        exchange(address, request.as_bytes())
    }

    #[track_caller]
    fn assert_status(answer: &str, status: u16) {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "not {status}: {answer:.600}");
    }

    #[test]
    fn an_address_that_others_can_reach_needs_a_token_or_to_be_insisted_on() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let public = ["--redis", "0.0.0.0:0", "--http", "off"];
        let refused = serve(&data, &public).err().unwrap();
        assert_eq!(refused.code, Some(2));
        assert!(
            refused.log.contains("haul token add") && refused.log.contains("--allow-public"),
            "{}",
            refused.log
        );
        let refused = serve(&data, &["--redis", "127.0.0.1:0", "--http", "[::]:0"]).err().unwrap();
        assert!(refused.log.contains("can be reached from other machines"), "{}", refused.log);
        drop(serve(&data, &[public.as_slice(), &["--allow-public"]].concat()).unwrap());
        let data = folder.path().join("other");
        says(&["token", "add", "ops", "--role", "admin", "--data", data.to_str().unwrap()], &[], 0);
        let server = serve(&data, &public).unwrap();
        let mut client =
            crate::support::Client::connect(([127, 0, 0, 1], server.address.port()).into()).unwrap();
        assert!(client.refusal(&["PING"]).starts_with("NOAUTH"));
        // Removing the last one must not open what others can reach.
        says(&["token", "remove", "ops", "--last", "--data", data.to_str().unwrap()], &[], 0);
        server.wait_for("the tokens have changed");
        assert!(client.refusal(&["PING"]).starts_with("NOAUTH"));
    }

    #[test]
    fn tokens_are_made_listed_used_and_removed_while_the_server_runs() {
        let folder = tempfile::tempdir().unwrap();
        let server = serve_both(folder.path(), &[]);
        let (at, data) = (server.address.to_string(), folder.path().to_str().unwrap().to_owned());
        let http = http_address(&server);
        let mut open = server.connect();
        assert_eq!(open.call(&["PING"]), Frame::Simple("PONG".into()));
        assert!(says(&["token", "list", "--data", &data], &[], 0).contains("no tokens"));

        let json = says(
            &["token", "add", "ops", "--role", "admin", "--tenant", "*", "--data", &data, "--json"],
            &[],
            0,
        );
        let ops: serde_json::Value = serde_json::from_str(&json).unwrap();
        let ops = ops.get("token").and_then(serde_json::Value::as_str).unwrap().to_owned();
        let shop =
            says(&["token", "add", "shop", "--role", "work", "--tenant", "acme", "--data", &data], &[], 0);
        assert!(shop.starts_with("haul_") && shop.len() == 69, "{shop}");
        assert!(
            says(&["token", "add", "shop", "--role", "view", "--data", &data], &[], 1).contains("EXISTS")
        );
        assert!(
            says(&["token", "add", "a b", "--role", "view", "--data", &data], &[], 2)
                .contains("a token's name")
        );
        let list = says(&["token", "list", "--data", &data], &[], 0);
        assert!(list.contains("shop") && list.contains("acme") && !list.contains("haul_"), "{list}");

        // The open connection loses what it had, without a restart.
        eventually("the token is asked for", || matches!(open.call(&["PING"]), Frame::Error(_)));
        assert!(says(&["ping", "--server", &at], &[], 1).contains("NOAUTH"));
        assert!(says(&["ping", "--server", &at], &[("HAUL_TOKEN", "haul_x")], 1).contains("WRONGPASS"));
        says(&["put", "mail", "k", "--jid", "j1", "--server", &at], &[("HAUL_TOKEN", &shop)], 0);
        assert!(says(&["cancel", "j1", "--server", &at], &[("HAUL_TOKEN", &shop)], 1).contains("NOPERM"));
        assert!(says(&["job", "j1", "--server", &at], &[("HAUL_TOKEN", &ops)], 1).contains("NOJOB"));
        let file = folder.path().join("ops.token");
        std::fs::write(&file, format!("{ops}\n")).unwrap();
        let file = file.to_str().unwrap();
        says(&["job", "j1", "--tenant", "acme", "--server", &at, "--token-file", file], &[], 0);
        says(&["cancel", "j1", "--tenant", "acme", "--server", &at, "--token-file", file], &[], 0);

        assert_status(&get(&http, "/api/v1/jobs/j1", ""), 401);
        assert!(get(&http, "/api/v1/jobs/j1", "").to_lowercase().contains("www-authenticate: bearer"));
        let bearer = format!("authorization: Bearer {shop}\r\n");
        assert_status(&get(&http, "/api/v1/jobs/j1", &bearer), 404);
        assert_status(&get(&http, "/api/v1/jobs/j1", &format!("{bearer}x-haul-tenant: other\r\n")), 403);
        assert_status(&get(&http, "/api/v1/jobs/j1", "cookie: a=b; haul_session=x\r\n"), 401);
        assert_status(&get(&http, "/healthz", ""), 200);

        says(&["token", "remove", "shop", "--data", &data], &[], 0);
        eventually("the removed token is refused", || {
            get(&http, "/api/v1/jobs/j1", &bearer).contains(" 401 ")
        });
        assert!(says(&["token", "remove", "shop", "--data", &data], &[], 1).contains("NOTOKEN"));
        assert!(says(&["token", "remove", "ops", "--data", &data], &[], 1).contains("LAST"));
        let audit = says(&["audit", "--data", &data], &[], 0);
        for word in ["token-add", "token-remove", "cancel", "NOPERM", "shop", "j1"] {
            assert!(audit.contains(word), "{word} is not in\n{audit}");
        }
        assert!(!server.log().contains(&shop) && !server.log().contains(&ops), "a secret in the log");
        assert!(server.log().contains("a wrong token was shown"));
    }

    #[test]
    fn the_load_generator_shows_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().to_str().unwrap();
        let token = says(&["token", "add", "ops", "--role", "admin", "--data", data], &[], 0);
        let server = serve_both(folder.path(), &[]);
        let (at, http) = (server.address.to_string(), http_address(&server));
        for driver in ["haul", "http"] {
            let bench =
                ["bench", "--address", &at, "--http", &http, "--driver", driver, "--jobs", "20", "--json"];
            assert!(says(&bench, &[], 1).contains("NOAUTH"));
            let report = says(&bench, &[("HAUL_TOKEN", &token)], 0);
            let report: serde_json::Value = serde_json::from_str(&report).unwrap();
            assert!(report["phases"][0]["jobs"].as_u64().unwrap() >= 20, "{report}");
        }
    }

    /// Logs in with a token; answers the whole answer and the cookie to show.
    fn log_in(address: &str, token: &str) -> (String, String) {
        let body = format!(r#"{{"token":"{token}"}}"#);
        let request = format!(
            "POST /ui/login HTTP/1.1\r\nhost: {address}\r\norigin: http://{address}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = exchange(address, request.as_bytes());
        assert_status(&answer, 204);
        let set = answer.lines().find(|line| line.to_lowercase().starts_with("set-cookie: ")).unwrap();
        let cookie = set.split(": ").nth(1).unwrap().split(';').next().unwrap();
        (answer.clone(), format!("cookie: {cookie}\r\n"))
    }

    #[test]
    fn a_session_of_the_page_ends_with_its_token() {
        let folder = tempfile::tempdir().unwrap();
        let server = serve_both(folder.path(), &[]);
        let (data, http) = (folder.path().to_str().unwrap().to_owned(), http_address(&server));
        says(&["token", "add", "ops", "--role", "admin", "--data", &data], &[], 0);
        let token = says(&["token", "add", "eye", "--role", "view", "--data", &data], &[], 0);
        server.wait_for("the tokens have changed");
        eventually("the token is asked for", || get(&http, "/api/v1/queues", "").contains(" 401 "));
        let (answer, cookie) = log_in(&http, &token);
        assert!(answer.contains("HttpOnly; SameSite=Strict") && !answer.contains("Secure"), "{answer}");
        assert!(!answer.contains(&token), "the cookie is not the token");
        assert_status(&get(&http, "/api/v1/queues", &cookie), 200);
        says(&["token", "remove", "eye", "--data", &data], &[], 0);
        eventually("the session has ended", || get(&http, "/api/v1/queues", &cookie).contains(" 401 "));
    }

    #[test]
    fn a_broken_file_of_tokens_stops_the_start_and_says_which() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tokens.json"), "{").unwrap();
        let refused = serve(folder.path(), &["--redis", "127.0.0.1:0", "--http", "off"]).err().unwrap();
        assert!(refused.code == Some(2) && refused.log.contains("tokens.json"), "{refused:?}");
    }

    /// An authority, and files of what it signed.
    struct Authority {
        folder: PathBuf,
        issuer: CertifiedIssuer<'static, KeyPair>,
    }

    impl Authority {
        fn new(folder: &Path, name: &str) -> Authority {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            let folder = folder.join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("ca.pem"), issuer.pem()).unwrap();
            Authority { folder, issuer }
        }

        fn ca(&self) -> String {
            self.folder.join("ca.pem").to_str().unwrap().to_owned()
        }

        /// A certificate and its key, in these files.
        fn sign(&self, cert: &Path, key: &Path) {
            let params =
                CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
            let pair = KeyPair::generate().unwrap();
            let signed = params.signed_by(&pair, &self.issuer).unwrap();
            std::fs::write(key, pair.serialize_pem()).unwrap();
            std::fs::write(cert, signed.pem()).unwrap();
        }
    }

    fn trusting(ca: &str, identity: Option<(PathBuf, PathBuf)>) -> Options {
        let tls = Tls { ca: Some(ca.into()), identity, server_name: None };
        Options { tls: Some(tls), connect_timeout: PATIENCE, ..Options::default() }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn tls_is_spoken_on_both_ports_and_new_certificates_are_taken_without_restart() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let (old, new) = (Authority::new(folder.path(), "old"), Authority::new(folder.path(), "new"));
        old.sign(&cert, &key);
        let files = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
        let server = serve_both(&folder.path().join("data"), &files);
        let (at, http) = (server.address.to_string(), http_address(&server));

        // A client that does not speak TLS is told so.
        let told = exchange(&at, b"*1\r\n$4\r\nPING\r\n");
        assert_eq!(told, "-ERR this port speaks TLS: connect with TLS (rediss://, haul --tls)\r\n");
        let told = get(&http, "/healthz", "");
        assert_status(&told, 400);
        assert!(told.contains("use https"), "{told}");
        assert!(exchange(&at, b"\x16\x03\x01\x00\x05hello").len() < 50, "garbage is ended");

        let client = Client::connect(&at, trusting(&old.ca(), None)).await.unwrap();
        let big = "x".repeat(3 << 20);
        let jid = client.put(&Put::new("q", "k", &big)).await.unwrap();
        let jobs = client.pop(&Pop::new("w", ["q"]).wait(PATIENCE)).await.unwrap();
        assert_eq!(jobs.first().map(|job| job.jid.as_str()), Some(jid.as_str()));
        assert!(
            Client::connect(&at, trusting(&new.ca(), None)).await.is_err(),
            "an authority we do not trust"
        );
        says(&["ping", "--server", &at, "--tls-ca", &old.ca()], &[], 0);
        says(&["handler", "list", "acme", "--http", &http, "--tls-ca", &old.ca()], &[], 0);
        let other = ["handler", "list", "acme", "--http", &format!("https://{http}"), "--tls-ca", &new.ca()];
        assert!(says(&other, &[], 3).contains("certificate"));
        let backup = |name: &str, more: &[&str], code| {
            let file = folder.path().join(name);
            let told = says(&[&["backup", file.to_str().unwrap()], more].concat(), &[], code);
            assert_eq!(file.exists(), code == 0, "{told}");
            told
        };
        let https = format!("https://{http}");
        assert!(backup("a", &["--http", &https, "--tls-ca", &old.ca()], 0).contains("all verified"));
        backup("b", &["--http", &http, "--tls-ca", &old.ca()], 0);
        assert!(backup("c", &["--http", &https, "--tls-ca", &new.ca()], 2).contains("--tls"));
        assert!(backup("d", &["--http", &http], 2).contains("use https"));
        says(&["ping", "--server", &format!("rediss://{at}"), "--tls-ca", &new.ca()], &[], 3);
        let curl = ["-s", "--max-time", "30", "--cacert", &old.ca(), &format!("https://{http}/healthz")]
            .map(str::to_owned);
        if let Ok(output) = Command::new("curl").args(curl).output() {
            assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n");
        }
        let login = ["-s", "-i", "--max-time", "30", "--cacert", &old.ca(), "--json", "{\"token\":\"\"}"];
        if let Ok(output) = Command::new("curl").args(login).arg(format!("https://{http}/ui/logout")).output()
        {
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(told.contains("SameSite=Strict; Secure"), "{told}");
        }

        // What cannot be used is not used.
        std::fs::write(&cert, "not a certificate").unwrap();
        server.wait_for("the certificate read last stays in force");
        assert!(Client::connect(&at, trusting(&old.ca(), None)).await.is_ok());
        new.sign(&cert, &key);
        server.wait_for("the TLS certificate was read again");
        assert!(Client::connect(&at, trusting(&new.ca(), None)).await.is_ok());
        assert!(Client::connect(&at, trusting(&old.ca(), None)).await.is_err());
        assert!(client.get(&jid).await.unwrap().is_some(), "connections that are open stay");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn clients_can_be_made_to_have_a_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (ours, theirs) = (Authority::new(folder.path(), "ours"), Authority::new(folder.path(), "theirs"));
        ours.sign(&path("cert"), &path("key"));
        ours.sign(&path("client-cert"), &path("client-key"));
        theirs.sign(&path("other-cert"), &path("other-key"));
        let (cert, key) = (path("cert"), path("key"));
        let ca = ours.ca();
        let files = [
            "--tls-cert",
            cert.to_str().unwrap(),
            "--tls-key",
            key.to_str().unwrap(),
            "--tls-client-ca",
            &ca,
        ];
        let server = serve_both(&path("data"), &files);
        let at = server.address.to_string();
        let good = Some((path("client-cert"), path("client-key")));
        let client = Client::connect(&at, trusting(&ca, good)).await.unwrap();
        client.call(&["PING"]).await.unwrap();
        for identity in [None, Some((path("other-cert"), path("other-key")))] {
            let mut options = trusting(&ca, identity);
            options.request_timeout = std::time::Duration::from_secs(2);
            // TLS 1.3 tells a client that its certificate is refused only after the handshake.
            match Client::connect(&at, options).await {
                Err(_) => {}
                Ok(client) => assert!(client.call(&["PING"]).await.is_err()),
            }
        }
    }

    #[test]
    fn each_limit_of_http_takes_what_is_at_it_and_refuses_one_more() {
        let folder = tempfile::tempdir().unwrap();
        let limits = [
            "--url-bytes-max",
            "100",
            "--header-bytes-max",
            "8192",
            "--body-bytes-max",
            "1000",
            "--request-seconds-max",
            "1",
            "--cors-origin",
            "https://ops.example.com",
        ];
        let server = serve_both(folder.path(), &limits);
        let http = http_address(&server);
        let url = |bytes: usize| format!("/healthz?{}", "x".repeat(bytes - "/healthz?".len()));
        assert_status(&get(&http, &url(100), ""), 200);
        assert_status(&get(&http, &url(101), ""), 414);

        let frame =
            format!("GET /healthz HTTP/1.1\r\nhost: {http}\r\nconnection: close\r\nx: \r\n\r\n").len();
        let header = |bytes: usize| format!("x: {}\r\n", "y".repeat(bytes - frame));
        assert_status(&get(&http, "/healthz", &header(8192 - 1)), 200);
        assert_status(&get(&http, "/healthz", &header(8192 + 1)), 431);

        let post = |length: usize| {
            let head = "POST /nowhere HTTP/1.1\r\nhost: h\r\nconnection: close\r\n";
            exchange(
                &http,
                format!("{head}content-length: {length}\r\n\r\n{}", "x".repeat(length)).as_bytes(),
            )
        };
        assert_status(&post(1000), 404);
        assert_status(&post(1001), 413);

        // Headers that do not come end the connection.
        let began = std::time::Duration::from_secs(30);
        let mut stream = TcpStream::connect(&http).unwrap();
        stream.set_read_timeout(Some(began)).unwrap();
        stream.write_all(b"GET /healthz HT").unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();

        let foreign = "origin: https://evil.example\r\n";
        assert_status(&get(&http, "/healthz", foreign), 403);
        assert!(!get(&http, "/healthz", "").contains("access-control"));
        let allowed = get(&http, "/healthz", "origin: https://ops.example.com\r\n");
        assert_status(&allowed, 200);
        assert!(allowed.contains("access-control-allow-origin: https://ops.example.com"), "{allowed}");
        let own = format!("origin: http://{http}\r\n");
        assert_status(&get(&http, "/healthz", &own), 200);
        let preflight = "OPTIONS /api/v1/jobs HTTP/1.1\r\nhost: h\r\nconnection: close\r\norigin: https://ops.example.com\r\n\
            access-control-request-method: POST\r\naccess-control-request-headers: authorization\r\n\r\n";
        let answer = exchange(&http, preflight.as_bytes());
        assert_status(&answer, 204);
        assert!(answer.contains("access-control-allow-headers: authorization"), "{answer}");
    }

    #[test]
    fn a_machine_has_so_many_connections_and_requests() {
        let folder = tempfile::tempdir().unwrap();
        let server = serve_both(folder.path(), &["--peer-connections-max", "2", "--peer-requests-max", "2"]);
        let http = http_address(&server);
        let two = "GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n".repeat(2);
        let last = "GET /healthz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
        let answer = exchange(&http, format!("{two}{last}").as_bytes());
        assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 2, "{answer}");
        assert_eq!(answer.matches("HTTP/1.1 429 ").count(), 1, "{answer}");
        assert!(answer.contains("retry-after: 1"), "{answer}");

        let mut first = server.connect();
        assert_eq!(first.call(&["PING"]), Frame::Simple("PONG".into()));
        // The connection of before counts until its end has been seen.
        let mut second = None;
        eventually("there is room for two", || {
            let mut conn = server.connect();
            let answer = conn.send(&["PING"]).and_then(|()| conn.read());
            second = answer.is_ok_and(|answer| answer == Frame::Simple("PONG".into())).then_some(conn);
            second.is_some()
        });
        eventually("one more is refused", || {
            exchange(&server.address.to_string(), b"") == "-ERR max number of clients reached\r\n"
        });
        let refused = exchange(&http, b"");
        assert_status(&refused, 503);
        let (_, body) = refused.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], "CONNECTIONS");
    }

    #[test]
    fn a_stop_answers_those_who_wait_and_finishes_what_has_arrived() {
        let folder = tempfile::tempdir().unwrap();
        let server = serve_both(folder.path(), &[]);
        let (mut waiter, mut list, mut idle) = (server.connect(), server.connect(), server.connect());
        waiter.send(&["HAUL.POP", "w", "WAIT", "600", "QUEUES", "q"]).unwrap();
        list.send(&["BLPOP", "l", "600"]).unwrap();
        eventually("both wait", || {
            let Frame::Bulk(info) = idle.call(&["INFO"]) else { return false };
            String::from_utf8_lossy(&info).contains("blocked_clients:2")
        });
        let stopping = std::thread::spawn(move || server.stop());
        let answer = waiter.read().unwrap();
        assert!(
            matches!(&answer, Frame::Array(jobs) if jobs.is_empty()) || answer == Frame::Nil,
            "{answer:?}"
        );
        assert!(matches!(list.read().unwrap(), Frame::Nil | Frame::NilArray));
        waiter.assert_closed();
        idle.assert_closed();
        if !stopping.join().unwrap().success() {
            panic!("it did not stop cleanly");
        }
    }
}
