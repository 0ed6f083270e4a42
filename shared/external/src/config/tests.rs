use super::*;

fn parse(text: &str) -> Result<ExternalConfig, String> {
    ExternalConfig::parse(Path::new("/etc/quartet/cloud.yaml"), text).map_err(|error| {
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert_eq!(error.message.lines().count(), 1, "one line: {error}");
        let problem = error.message.strip_prefix("--cloud-config /etc/quartet/cloud.yaml: ");
        problem.expect("the message begins with the file").to_owned()
    })
}

#[test]
fn understands_good_files() {
    let tcp = |host: &str, port| Target::Tcp { host: host.to_owned(), port };
    for (text, target) in [
        ("endpoint: unix:///run/cloud.sock", Target::Unix("/run/cloud.sock".into())),
        ("endpoint: http://localhost:8080", tcp("localhost", 8080)),
        ("endpoint: http://[::1]:8080/", tcp("[::1]", 8080)),
        ("{endpoint: 'http://10.0.0.1:1', tls: null}", tcp("10.0.0.1", 1)),
    ] {
        let connect_timeout = Duration::from_secs(5);
        assert_eq!(
            parse(text),
            Ok(ExternalConfig { target, tls: None, connect_timeout }),
            "{text}"
        );
    }
    let text = "endpoint: https://cloud:443\nconnectTimeout: ' 500ms'\n\
                tls: {ca: ca.pem, cert: /abs/tls.crt, key: tls.key, serverName: cloud.local}";
    let files = TlsFiles {
        ca: "/etc/quartet/ca.pem".into(),
        identity: Some(("/abs/tls.crt".into(), "/etc/quartet/tls.key".into())),
        server_name: Some("cloud.local".to_owned()),
    };
    let expect = ExternalConfig {
        target: Target::Tls { host: "cloud".to_owned(), port: 443 },
        tls: Some(files),
        connect_timeout: Duration::from_millis(500),
    };
    assert_eq!(parse(text), Ok(expect));
}

#[test]
fn a_file_that_would_cost_too_much_is_refused() {
    let refused = parse(&"- ".repeat(20_000)).unwrap_err();
    let expect = "not valid YAML: line 1: more than 64 levels of nesting";
    assert!(refused.contains(expect), "{refused}");
}

/// Each invalid file and its error message: the key, the problem and the valid values.
#[test]
fn refuses_bad_files_with_a_line_that_helps() {
    let good = "endpoint: unix:///s";
    let https = "endpoint: https://h:1";
    for (text, expect) in [
        (String::new(), vec!["endpoint: missing", "unix:///"]),
        ("endpoint:".into(), vec!["endpoint: missing"]),
        ("endpoint: ''".into(), vec!["endpoint: empty"]),
        ("endpoint: 7".into(), vec!["endpoint: must be a text"]),
        ("- a".into(), vec!["must be a mapping with the keys endpoint"]),
        ("endpoint: [".into(), vec!["not valid YAML"]),
        (format!("{good}\n{good}"), vec!["not valid YAML", "duplicate"]),
        ("endpoint: /run/cloud.sock".into(), vec!["has no scheme", "unix:///"]),
        ("endpoint: unix://run/cloud.sock".into(), vec!["absolute path", "three slashes"]),
        ("endpoint: unix:///".into(), vec!["names no socket"]),
        (format!("endpoint: unix:///{}", "x".repeat(107)), vec!["longer than 107 bytes"]),
        ("endpoint: ftp://h:1".into(), vec!["unknown scheme \"ftp\""]),
        ("endpoint: http://h".into(), vec!["no port"]),
        ("endpoint: http://h:0".into(), vec!["port from 1 to 65535"]),
        ("endpoint: http://h:65536".into(), vec!["port from 1 to 65535"]),
        ("endpoint: http://:80".into(), vec!["host name"]),
        ("endpoint: http://a/b:80".into(), vec!["host name"]),
        ("endpoint: http://[::g]:80".into(), vec!["no IPv6 address"]),
        (format!("{good}\nendpiont: x"), vec!["endpiont: unknown key; did you mean endpoint?"]),
        (format!("{good}\nregion: x"), vec!["region: unknown key; known are endpoint, tls"]),
        (format!("{https}\ntls.ca: x"), vec!["tls.ca: unknown key; write ca below tls:"]),
        (format!("{good}\n7: x"), vec!["7", "unknown key"]),
        (
            format!("{good}\nconnectTimeout: 0"),
            vec!["connectTimeout = \"0s\": must be a duration above 0"],
        ),
        (format!("{good}\nconnectTimeout: -1"), vec!["connectTimeout = \"-1s\": must be"]),
        (format!("{good}\nconnectTimeout: .nan"), vec!["must be a duration"]),
        (format!("{good}\nconnectTimeout: 2m"), vec!["at most 60 s"]),
        (format!("{good}\nconnectTimeout: soon"), vec!["such as 5s"]),
        (format!("{good}\nconnectTimeout: 1min"), vec!["such as 5s"]),
        (format!("{good}\nconnectTimeout: 5 s"), vec!["such as 5s"]),
        (format!("{good}\nconnectTimeout: [5]"), vec!["such as 5s"]),
        (format!("{good}\ntls: {{ca: x}}"), vec!["tls: endpoint unix:///s does not use TLS"]),
        (https.into(), vec!["tls.ca: missing"]),
        (format!("{https}\ntls: yes please"), vec!["tls: must be a mapping with the keys ca"]),
        (format!("{https}\ntls: {{}}"), vec!["tls.ca: missing"]),
        (format!("{https}\ntls: {{ca: ''}}"), vec!["tls.ca: empty"]),
        (format!("{https}\ntls: {{ca: x, cert: y}}"), vec!["tls.key: missing"]),
        (format!("{https}\ntls: {{ca: x, key: y}}"), vec!["tls.cert: missing"]),
        (format!("{https}\ntls: {{ca: x, servername: y}}"), vec!["did you mean tls.serverName?"]),
        // All errors at once.
        (
            "endpoint: nowhere\nconnectTimeout: never\ntls: {cert: y}\nfoo: 1".into(),
            vec![
                "endpoint = \"nowhere\": has no scheme",
                "connectTimeout = \"never\":",
                "tls.ca: missing",
                "tls.key: missing",
                "foo: unknown",
            ],
        ),
    ] {
        let problem = parse(&text).expect_err(&text);
        for word in expect {
            assert!(problem.contains(word), "{text:?} gives {problem:?}, which lacks {word:?}");
        }
    }
}

#[test]
fn a_missing_key_is_reported_once() {
    let problem = parse("endpoint: https://h:1\ntls: {ca: ''}").unwrap_err();
    assert_eq!(problem.matches("tls.ca").count(), 1, "{problem}");
}

#[test]
fn says_why_there_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("binary");
    std::fs::write(&binary, [0xff, 0xfe, 0x00]).unwrap();
    for (path, expect) in [
        (None, "--cloud-config: missing"),
        (Some(folder.path().join("none.yaml")), "there is no such file"),
        (Some(folder.path().to_owned()), "is a folder"),
        (Some(binary), "is not a text file"),
    ] {
        let error = ExternalConfig::read(path.as_deref(), &mut Files::default()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.message.contains(expect), "{error}");
        let name = path.map(|path| path.display().to_string()).unwrap_or_default();
        assert!(error.message.contains(&name), "{error}");
    }
}
