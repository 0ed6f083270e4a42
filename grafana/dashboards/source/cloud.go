package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

// cloudCalls is about what the cloud is asked and how it answers.
func cloudCalls() row {
	return row{title: "Calls to the cloud", panels: []panel{
		graph{
			title: "Calls by kind",
			about: about{
				shows:  "Requests that were sent to the cloud, per second, by operation.",
				normal: "A list of the fleet once per period and few lookups: one serves up to 500 nodes.",
				do:     "Many lookups for long: nodes flap, or the cloud fails and is asked again. See the results beside it.",
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
				do:     "`throttled`: see the limits below. `unauthorized`, `forbidden`: mend the credentials; nothing is deleted meanwhile. `timeout`, `unavailable`: the cloud; new nodes wait.",
				alert:  "CCMCloudErrors",
				page:   "node-ccm.md",
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
				shows:  "From sending a request to the end of its answer: half of them, and 99 of 100, were faster.",
				normal: "What the cloud usually takes: a second or two for a list.",
				do:     "At 30 s (`--cloud-call-timeout`) calls are given up. Ask the cloud's people; a longer time-out helps only lists.",
			},
			unit: units.Seconds,
			lines: []line{
				{quantile(0.5, short, "operation", of("ccm_cloud_request_duration_seconds_bucket")), "{{operation}}: half of them"},
				{quantile(0.99, short, "operation", of("ccm_cloud_request_duration_seconds_bucket")), "{{operation}}: 99 %"},
			},
		}.panel(),
	}}
}

// limits is about the budgets of requests: to the cloud first, to the API server as well.
func limits() row {
	return row{title: "Rate limits: budget used, and time spent waiting for it", panels: []panel{
		graph{
			title: "Budget used",
			about: about{
				shows:  "Requests that were let through, as a share of the rate in force. Above 100 % a burst is used up.",
				normal: "A few percent; short peaks while many nodes register.",
				do:     "At 100 % for minutes, with requests that wait: raise `--cloud-read-qps`, if the cloud's quota allows it, in the ConfigMap: it is in force within seconds.",
				page:   "rate-limits.md",
			},
			unit: units.PercentUnit,
			lines: []line{{
				sum("service, class", rate(of("ccm_limiter_wait_seconds_count"))) + " / " + highest("service, class", of("ccm_limiter_rate")),
				"{{service}} {{class}}",
			}},
			bad: []step{{1, red}},
		}.panel(),
		graph{
			title: "Rate in force",
			about: about{
				shows:  "Requests per second to the cloud that are let through now, and the configured ones. A cloud that refuses a request as one too many halves the first; it comes back within a minute.",
				normal: "Both lines as one.",
				do:     "The rate in force stays low: the cloud goes on refusing. Configure less than its quota, or let others use less of it.",
				page:   "rate-limits.md",
			},
			unit: units.RequestsPerSecond,
			lines: []line{
				{aggregate("min", "service, class", of("ccm_limiter_rate", notAPIServer)), "{{service}} {{class}}: in force"},
				{highest("service, class", of("ccm_limiter_configured_rate", notAPIServer)), "{{service}} {{class}}: configured"},
			},
		}.panel(),
		graph{
			title: "Refused as too many",
			about: about{
				shows:  "Requests that the other side refused with 429 or its like, per second.",
				normal: "None.",
				do:     "The quota is shared: who else asks this cloud with these credentials? Then see the rate in force.",
				alert:  "CCMCloudThrottled",
				page:   "rate-limits.md",
			},
			unit:  units.RequestsPerSecond,
			lines: []line{{sum("service, class", rate(of("ccm_limiter_throttled_total"))), "{{service}} {{class}}"}},
		}.panel(),
		graph{
			title: "Time spent waiting",
			about: about{
				shows:  "How long a request waited on average until the limit let it through, in the last five minutes.",
				normal: "Milliseconds.",
				do:     "Seconds: nodes wait for nothing but the limit. Raise it, or find who asks so much.",
				page:   "rate-limits.md",
			},
			unit: units.Seconds,
			lines: []line{{
				average(short, "service, class", of("ccm_limiter_wait_seconds_sum"), of("ccm_limiter_wait_seconds_count")),
				"{{service}} {{class}}",
			}},
			wide: 6,
		}.panel(),
		graph{
			title: "Requests that wait now",
			about: about{
				shows:  "Requests that wait for their turn at the limit.",
				normal: "0.",
				do:     "Many for minutes: see budget used and the pause that the cloud asked for.",
				page:   "rate-limits.md",
			},
			unit:  units.Short,
			lines: []line{{sum("service, class", of("ccm_limiter_waiting")), "{{service}} {{class}}"}},
			wide:  6,
		}.panel(),
		graph{
			title: "Pause that was asked for",
			about: about{
				shows:  "For how much longer the other side asked to be left alone (`Retry-After`).",
				normal: "0.",
				do:     "Nothing is asked until it is over; five minutes at most are believed. If it comes again and again, ask less: see the quota.",
				page:   "rate-limits.md",
			},
			unit:  units.Seconds,
			lines: []line{{highest("service, class", of("ccm_limiter_closed_seconds")), "{{service}} {{class}}"}},
			wide:  6,
		}.panel(),
		graph{
			title: "Calls that were not made",
			about: about{
				shows:  "Calls to the cloud that were given up before they were sent, per second, by why.",
				normal: "None.",
				do:     "`closed`: the pause lasts longer than a call may take; wait for it. `rate_limit`: no turn in time; raise the limit. `leadership`: this replica was about to lose its term.",
				page:   "rate-limits.md",
			},
			unit:  units.RequestsPerSecond,
			lines: []line{{sum("reason", rate(of("ccm_cloud_requests_refused_total"))), "{{reason}}"}},
			wide:  6,
		}.panel(),
	}}
}

const notAPIServer = `service!="apiserver"`

// openStack has data only where OpenStack is the provider.
func openStack() row {
	return row{title: "OpenStack (empty with any other provider)", collapsed: true, panels: []panel{
		number{
			title: "Credentials",
			about: about{
				shows:  "Whether Keystone refused the credentials at the last login.",
				normal: "accepted",
				do:     "Mend `cloud.conf` in its Secret; it is read again without a restart.",
				alert:  "CCMCloudCredentialsRefused",
				page:   "providers/openstack.md",
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
				shows:  "Whether a changed cloud configuration is not used because it is wrong or the cloud does not take it.",
				normal: "in use",
				do:     "The log names the mistake. The old configuration stays in use until the restart.",
				alert:  "OpenStackConfigurationRefused",
				page:   "providers/openstack.md",
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
				shows:  "Logins at Keystone per second. `refused` says no to the credentials, `failed` says nothing about them.",
				normal: "One when the token runs out, every hour or so.",
				do:     "`refused`: the credentials. `failed`: Keystone or the way to it.",
				page:   "providers/openstack.md",
			},
			unit:  units.Short,
			lines: []line{{sum("result", rate(of("openstack_token_renewals_total"))), "{{result}}"}},
		}.panel(),
		graph{
			title: "HTTP requests and those without a good answer",
			about: about{
				shows:  "Requests to OpenStack's services per second, logins and repetitions included.",
				normal: "No errors.",
				do:     "The name of the request tells the service: ask its people, with the request ID from the log.",
				page:   "providers/openstack.md",
			},
			unit: units.RequestsPerSecond,
			lines: []line{
				{sum("request", rate(of("openstack_api_requests_total"))), "{{request}}"},
				{sum("request", rate(of("openstack_api_request_errors_total"))), "{{request}}: no good answer"},
			},
		}.panel(),
		graph{
			title: "Time to answer",
			about: about{
				shows:  "From sending a request to the end of OpenStack's answer: 99 of 100 were faster.",
				normal: "Below two seconds for a page of servers.",
				do:     "Slower: Nova or its database is busy.",
				page:   "providers/openstack.md",
			},
			unit:  units.Seconds,
			lines: []line{{quantile(0.99, short, "request", of("openstack_api_request_duration_seconds_bucket")), "{{request}}"}},
			wide:  24,
		}.panel(),
	}}
}
