package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

// cloudCalls shows requests to the cloud and their results.
func cloudCalls() row {
	return row{title: "Calls to the cloud", panels: []panel{
		graph{
			title: "Calls by kind",
			about: about{
				shows:  "Requests to the cloud per second, by operation.",
				normal: "A lookup of all nodes once per period, and few others (one lookup serves up to 500 nodes).",
				do:     "Many lookups for a long time: nodes flap, or the controller retries failed calls. See *Calls without success, by result*.",
			},
			unit:    units.RequestsPerSecond,
			lines:   []line{{sum("operation", rate(of("ccm_cloud_requests_total"))), "{{operation}}"}},
			stacked: true,
		}.panel(),
		graph{
			title: "Calls without success, by result",
			about: about{
				shows:  "Requests that the cloud answered with an error or not at all, per second, by kind of error.",
				normal: "None.",
				do:     "`throttled`: see row *Rate limits*. `unauthorized`, `forbidden`: fix the credentials; no node is deleted until then. `timeout`, `unavailable`: check the cloud; new nodes wait.",
				alert:  "CCMCloudErrors",
				page:   "explanation/node-ccm.md",
			},
			unit: units.RequestsPerSecond,
			lines: []line{
				{some(sum("result", rate(of("ccm_cloud_requests_total", `result!~"success|not_found"`)))), "{{result}}"},
			},
			stacked: true,
		}.panel(),
		graph{
			title: "Time to answer",
			about: about{
				shows:  "Time from sending a request to the end of its answer: median and 99th percentile.",
				normal: "The cloud's usual response time: a second or two for a list.",
				do:     "At 30 s (`--cloud-call-timeout`) calls time out. Contact the cloud's operators; a longer timeout helps only lists.",
			},
			unit: units.Seconds,
			lines: []line{
				{quantile(0.5, short, "operation", of("ccm_cloud_request_duration_seconds_bucket")), "{{operation}}: half of them"},
				{quantile(0.99, short, "operation", of("ccm_cloud_request_duration_seconds_bucket")), "{{operation}}: 99 %"},
			},
		}.panel(),
	}}
}

// limits shows the rate limits of requests to the cloud and to the API server.
func limits() row {
	return row{title: "Rate limits: budget used, and time spent waiting for it", panels: []panel{
		graph{
			title: "Budget used",
			about: about{
				shows:  "Admitted requests, as a share of the rate in force. Above 100 % they use the burst.",
				normal: "A few percent; short peaks while many nodes register.",
				do:     "At 100 % for minutes, with waiting requests: raise `cloud_read_qps` in the ConfigMap, if the cloud's quota allows it. The change takes effect within seconds.",
				page:   "explanation/rate-limits.md",
			},
			unit: units.PercentUnit,
			lines: []line{{
				sum("api, class", rate(of("ccm_limiter_wait_seconds_count"))) + " / " + highest("api, class", of("ccm_limiter_rate")),
				"{{api}} {{class}}",
			}},
			bad: []step{{1, red}},
		}.panel(),
		graph{
			title: "Rate in force",
			about: about{
				shows:  "Current and configured rate of requests to the cloud, per second. When the cloud throttles a request, the current rate is halved; it recovers within a minute.",
				normal: "Both lines are equal.",
				do:     "The current rate stays low: the cloud keeps throttling. Configure a rate below its quota, or reduce the use by other clients.",
				page:   "explanation/rate-limits.md",
			},
			unit: units.RequestsPerSecond,
			lines: []line{
				{aggregate("min", "api, class", of("ccm_limiter_rate", notAPIServer)), "{{api}} {{class}}: in force"},
				{highest("api, class", of("ccm_limiter_configured_rate", notAPIServer)), "{{api}} {{class}}: configured"},
			},
		}.panel(),
		graph{
			title: "Throttled requests",
			about: about{
				shows:  "Requests that the cloud or the API server throttled (429 or equivalent), per second.",
				normal: "None.",
				do:     "The quota is shared: find other clients that use the same credentials. Then see *Rate in force*.",
				alert:  "CCMCloudThrottled",
				page:   "explanation/rate-limits.md",
			},
			unit:  units.RequestsPerSecond,
			lines: []line{{sum("api, class", rate(of("ccm_limiter_throttled_total"))), "{{api}} {{class}}"}},
		}.panel(),
		graph{
			title: "Time spent waiting",
			about: about{
				shows:  "Average time that a request waited for the rate limit, in the last five minutes.",
				normal: "Milliseconds.",
				do:     "Seconds: the rate limit delays the nodes. Raise it, or find the cause of the many requests.",
				page:   "explanation/rate-limits.md",
			},
			unit: units.Seconds,
			lines: []line{{
				average(short, "api, class", of("ccm_limiter_wait_seconds_sum"), of("ccm_limiter_wait_seconds_count")),
				"{{api}} {{class}}",
			}},
			wide: 6,
		}.panel(),
		graph{
			title: "Waiting requests",
			about: about{
				shows:  "Requests that currently wait for the rate limit.",
				normal: "0.",
				do:     "Many for minutes: see *Budget used* and *Retry-After pause*.",
				page:   "explanation/rate-limits.md",
			},
			unit:  units.Short,
			lines: []line{{sum("api, class", of("ccm_limiter_waiting")), "{{api}} {{class}}"}},
			wide:  6,
		}.panel(),
		graph{
			title: "Retry-After pause",
			about: about{
				shows:  "Remaining time of the pause that the cloud or the API server asked for (`Retry-After`).",
				normal: "0.",
				do:     "The controller sends no requests until the pause is over, at most five minutes. If pauses repeat, lower the rates below the quota.",
				page:   "explanation/rate-limits.md",
			},
			unit:  units.Seconds,
			lines: []line{{highest("api, class", of("ccm_limiter_closed_seconds")), "{{api}} {{class}}"}},
			wide:  6,
		}.panel(),
		graph{
			title: "Calls not sent",
			about: about{
				shows:  "Calls to the cloud that failed before they were sent, per second, by reason.",
				normal: "None.",
				do:     "`closed`: the `Retry-After` pause is longer than the call's deadline; wait. `rate_limit`: not admitted before the deadline; raise the limit. `leadership`: this replica was about to lose its term.",
				page:   "explanation/rate-limits.md",
			},
			unit:  units.RequestsPerSecond,
			lines: []line{{sum("reason", rate(of("ccm_cloud_requests_refused_total"))), "{{reason}}"}},
			wide:  6,
		}.panel(),
	}}
}

const notAPIServer = `api!="apiserver"`

// openStack has data only with the provider openstack.
func openStack() row {
	return row{title: "OpenStack (empty with any other provider)", collapsed: true, panels: []panel{
		number{
			title: "Credentials",
			about: about{
				shows:  "Whether Keystone refused the credentials at the last login.",
				normal: "accepted",
				do:     "Fix `cloud.conf` in its Secret; the program reloads it without a restart.",
				alert:  "CCMCloudCredentialsRefused",
				page:   "explanation/openstack.md",
			},
			lines: []line{{highest("", of("openstack_credentials_refused")), ""}},
			words: map[string]word{"0": {"accepted", green}, "1": {"refused", red}},
			base:  grey,
			none:  "not OpenStack",
			high:  8,
		}.panel(),
		number{
			title: "Changed cloud.conf",
			about: about{
				shows:  "Refused: a changed cloud configuration is invalid, or the cloud does not accept it.",
				normal: "in use",
				do:     "The log names the problem. The old configuration stays in use until the next restart.",
				alert:  "OpenStackConfigurationRefused",
				page:   "explanation/openstack.md",
			},
			lines: []line{{highest("", of("openstack_configuration_refused")), ""}},
			words: map[string]word{"0": {"in use", green}, "1": {"refused", red}},
			base:  grey,
			none:  "not OpenStack",
			high:  8,
		}.panel(),
		graph{
			title: "Logins by result",
			about: about{
				shows:  "Logins at Keystone per second. `refused`: Keystone rejected the credentials. `failed`: the login failed for another reason.",
				normal: "One when the token expires, about every hour.",
				do:     "`refused`: check the credentials. `failed`: check Keystone and the network path to it.",
				page:   "explanation/openstack.md",
			},
			unit:  units.Short,
			lines: []line{{sum("result", rate(of("openstack_token_renewals_total"))), "{{result}}"}},
		}.panel(),
		graph{
			title: "HTTP requests and errors",
			about: about{
				shows:  "Requests to OpenStack's services per second, including logins and retries.",
				normal: "No errors.",
				do:     "The request's name shows the service: contact its operators, with the request ID from the log.",
				page:   "explanation/openstack.md",
			},
			unit: units.RequestsPerSecond,
			lines: []line{
				{sum("request", rate(of("openstack_api_requests_total"))), "{{request}}"},
				{sum("request", rate(of("openstack_api_request_errors_total"))), "{{request}}: errors"},
			},
		}.panel(),
		graph{
			title: "Time to answer",
			about: about{
				shows:  "Time from sending a request to the end of OpenStack's answer, 99th percentile.",
				normal: "Below two seconds for a page of servers.",
				do:     "Slower: Nova or its database is busy.",
				page:   "explanation/openstack.md",
			},
			unit:  units.Seconds,
			lines: []line{{quantile(0.99, short, "request", of("openstack_api_request_duration_seconds_bucket")), "{{request}}"}},
			wide:  24,
		}.panel(),
	}}
}
