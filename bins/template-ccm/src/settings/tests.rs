use super::*;
use crate::TemplateCcm;

fn read(arguments: &[&str]) -> Result<TemplateSettings, String> {
    ccm_tests::in_process::settings::<TemplateCcm>(arguments)
}

#[test]
fn defaults_are_the_documented_ones() {
    let expect = TemplateSettings {
        instance_name_period: Duration::from_mins(10),
        cloud_call_timeout: Duration::from_secs(30),
    };
    assert_eq!(read(&[]).unwrap(), expect);
}

#[test]
fn durations_are_validated() {
    for (argument, expect) in [
        ("--instance-name-period=1s", None),
        ("--instance-name-period=999ms", Some("must be at least 1s")),
        ("--instance-name-period=soon", Some("instance-name-period=soon")),
        ("--cloud-call-timeout=11m", Some("from 1s to 10m0s")),
    ] {
        let got = read(&[argument]).err().unwrap_or_default();
        match expect {
            None => assert_eq!(got, "", "{argument}"),
            Some(part) => assert!(got.contains(part), "{argument}: {got}"),
        }
    }
}
