package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

func init() {
	boards = append(boards, board{
		name:        "overview",
		title:       "Quartet / Overview",
		description: "All of Quartet's controllers at a glance. Any program that reports ccm_build_info is here by itself.",
		rows:        []row{atAGlance(), work(), toTheCloud(), together()},
	})
}

// Controllers are told apart by the label that `named` adds.
const perProgram = "{{program}}"

// atAGlance is red where somebody has to act.
func atAGlance() row {
	return row{title: "Is all well?", panels: []panel{
		number{
			title: "Leaders",
			about: about{
				shows:  "Replicas that lead, for each program.",
				normal: "1 each.",
				do:     "0: nobody does the work; open the program's dashboard. 2: two scrapes of one moment, or two clusters of the same name.",
				alert:  "CCMNoLeader",
			},
			lines: []line{{sum("cluster, program", named(anywhere("leader_election_master_status"))), "{{program}} {{cluster}}"}},
			base:  red,
			steps: []step{{1, green}, {2, red}},
			none:  "no replica is seen",
			wide:  5,
			high:  5,
		}.panel(),
		number{
			title: "Replicas",
			about: about{
				shows:  "Replicas that Prometheus reaches, for each program.",
				normal: "2 each: one leads, one stands by.",
				do:     "1: a crash of it stops the work until a new one runs; look at the Deployment and its pods.",
				alert:  "CCMTargetDown",
			},
			lines: []line{{aggregate("count", "cluster, program", anywhere("ccm_build_info")), "{{program}} {{cluster}}"}},
			base:  red,
			steps: []step{{1, yellow}, {2, green}},
			none:  "no replica is seen",
			wide:  5,
			high:  5,
		}.panel(),
		number{
			title: "Configuration",
			about: about{
				shows:  "Whether each program's configuration file as it is now is valid.",
				normal: "valid",
				do:     "`refused`: the old version stays in use; the log names the mistake. Mend it before the next restart.",
				alert:  "CCMConfigRefused",
			},
			lines: []line{{aggregate("min", "cluster, program", named(anywhere("ccm_config_valid"))), "{{program}} {{cluster}}"}},
			words: map[string]word{"0": {"refused", red}, "1": {"valid", green}},
			base:  grey,
			none:  "no replica is seen",
			wide:  5,
			high:  5,
		}.panel(),
		number{
			title: "Nodes that wait to be initialised",
			about: about{
				shows:  "Tainted nodes that something keeps from being initialised.",
				normal: "0.",
				do:     "Open the dashboard of node-ccm: what nodes wait for.",
				alert:  "NodeCCMNodeWaiting",
				page:   stays,
			},
			lines: []line{{orZero(sum("", anywhere("ccm_node_waiting"))), ""}},
			base:  green,
			steps: []step{{1, yellow}, {10, red}},
			wide:  3,
			high:  5,
		}.panel(),
		number{
			title: "Nodes undecided",
			about: about{
				shows:  "Nodes that are not Ready and about which is not known whether to keep or to delete them.",
				normal: "0, and a few for half a minute.",
				do:     "Open the dashboard of lifecycle-ccm: time to verdict.",
				page:   court,
			},
			lines: []line{{orZero(sum("", anywhere("ccm_lifecycle_nodes", `state="undecided"`))), ""}},
			base:  green,
			steps: []step{{1, yellow}, {10, red}},
			wide:  3,
			high:  5,
		}.panel(),
		number{
			title: "Breaker",
			about: about{
				shows:  "Whether lifecycle-ccm deletes nothing because the cloud's list of the fleet is not believable.",
				normal: "closed",
				do:     "Are the credentials those of the right project and region? See the page.",
				alert:  "LifecycleCCMBreakerOpen",
				page:   breaker,
			},
			lines: []line{{highest("", anywhere("ccm_lifecycle_breaker_open")), ""}},
			words: map[string]word{"0": {"closed", green}, "1": {"open", red}},
			base:  grey,
			none:  "not installed",
			wide:  3,
			high:  5,
		}.panel(),
		strip{
			title: "Who leads",
			about: about{
				shows:  "Each replica of each program over time: whether it leads or stands by.",
				normal: "Exactly one replica of each program leads.",
				do:     "No line leads: open the program's dashboard, row leadership.",
			},
			lines: []line{{named(anywhere("leader_election_master_status")), "{{program}} {{instance}}"}},
			words: map[string]word{"0": {"stands by", grey}, "1": {"leads", green}},
			wide:  12,
		}.panel(),
		list{
			title: "Replicas",
			about: about{
				shows:  "What runs where, since when.",
				normal: "One version of each program, but during a roll-out.",
				do:     "Started a moment ago, again and again: it crashes; read the log of its last run (`kubectl logs --previous`).",
			},
			lines: []line{
				{highest("instance, program, version, commit", anywhere("ccm_build_info")), ""},
				{highest("instance", anywhere("process_start_time_seconds")+" and on ("+identity+") "+anywhere("ccm_build_info")) + " * 1000", ""},
			},
			hidden:  []string{"Value #A"},
			renamed: map[string]string{"instance": "Replica", "program": "Program", "version": "Version", "commit": "Commit", "Value #B": started},
			dates:   []string{started},
			wide:    12,
		}.panel(),
	}}
}

// work is what people notice first when it is slow.
func work() row {
	return row{title: "The work", panels: []panel{
		graph{
			title: "Time from registration to untaint",
			about: about{
				shows:  "How long new nodes waited until pods could run on them, in the last ten minutes: on average, and the 99 % that waited less. The bounds of the measurement are 1, 4, 16, 64, 256 and 1024 s: the second says between which two.",
				normal: "Both at most 1 s; a creation time is in whole seconds, so nothing finer can be said.",
				do:     "Open the dashboard of node-ccm.",
				page:   stays,
			},
			unit: units.Seconds,
			lines: []line{
				{average(long, "", anywhere(untaint+"_sum"), anywhere(untaint+"_count")), "on average"},
				{quantile(0.99, long, "", anywhere(untaint+"_bucket")), "99 %"},
			},
			bad: []step{{16, red}},
		}.panel(),
		graph{
			title: "Time to verdict",
			about: about{
				shows:  "From seeing that a node is not Ready to knowing whether to keep or to delete it: 99 of 100 waited less.",
				normal: "`keep`: seconds. `delete`: half a minute.",
				do:     "Open the dashboard of lifecycle-ccm.",
				page:   court,
			},
			unit:  units.Seconds,
			lines: []line{{quantile(0.99, long, "verdict", anywhere("ccm_lifecycle_time_to_verdict_seconds_bucket")), "{{verdict}}"}},
		}.panel(),
		graph{
			title: "Nodes initialised and deleted",
			about: about{
				shows:  "Nodes that became schedulable, and nodes that were deleted, in five minutes.",
				normal: "What the autoscaler or people did.",
				do:     "Deletions that nobody expected: protect nodes by `quartet.dev/deletion-protected`, then ask the log of lifecycle-ccm for the evidence.",
				page:   court,
			},
			unit: units.Short,
			lines: []line{
				{times("", "[5m]", anywhere(untaint+"_count")), "initialised"},
				{times("", "[5m]", anywhere("ccm_lifecycle_time_to_deletion_seconds_count")), "deleted"},
			},
		}.panel(),
	}}
}

// toTheCloud is what all programs together do to the cloud's quota.
func toTheCloud() row {
	return row{title: "The cloud", panels: []panel{
		graph{
			title: "Calls by program",
			about: about{
				shows:  "Requests that were sent to the cloud, per second.",
				normal: "A list of the fleet once per period, few lookups.",
				do:     "The program with the large area uses up the quota: open its dashboard.",
			},
			unit:    units.RequestsPerSecond,
			lines:   []line{{sum("program", named(rate(anywhere("ccm_cloud_requests_total")))), perProgram}},
			stacked: true,
			wide:    6,
		}.panel(),
		graph{
			title: "Calls without success",
			about: about{
				shows:  "Requests that the cloud answered with an error or not at all, per second, by program and kind of error.",
				normal: "None.",
				do:     "`throttled`: lower the rates. `unauthorized`, `forbidden`: mend the credentials. Else: the cloud.",
			},
			unit: units.RequestsPerSecond,
			lines: []line{{
				some(sum("program, result", named(rate(anywhere("ccm_cloud_requests_total", `result!="success"`))))), "{{program}}: {{result}}",
			}},
			stacked: true,
			wide:    6,
		}.panel(),
		graph{
			title: "Budget of calls used",
			about: about{
				shows:  "Requests to the cloud as a share of the rate in force.",
				normal: "A few percent.",
				do:     "At 100 %: open the program's dashboard, row rate limits.",
				page:   "rate-limits.md",
			},
			unit: units.PercentUnit,
			lines: []line{{
				sum("program, service, class", named(rate(anywhere("ccm_limiter_wait_seconds_count", notAPIServer)))) +
					" / " + highest("program, service, class", named(anywhere("ccm_limiter_rate", notAPIServer))),
				"{{program}} {{class}}",
			}},
			bad:  []step{{1, red}},
			wide: 6,
		}.panel(),
		graph{
			title: "Time spent waiting for the budget",
			about: about{
				shows:  "How long a request to the cloud waited on average for the limit, in the last five minutes.",
				normal: "Milliseconds.",
				do:     "Seconds: the limit holds up the work. Open the program's dashboard, row rate limits.",
				page:   "rate-limits.md",
			},
			unit: units.Seconds,
			lines: []line{{
				sum("program", named("rate("+anywhere("ccm_limiter_wait_seconds_sum", notAPIServer)+short+")")) + " / " +
					sum("program", named("rate("+anywhere("ccm_limiter_wait_seconds_count", notAPIServer)+short+")")),
				perProgram,
			}},
			wide: 6,
		}.panel(),
	}}
}

// together is what the programs cost the cluster.
func together() row {
	return row{title: "API server and machine", panels: []panel{
		graph{
			title: "Requests to the API server",
			about: about{
				shows:  "Requests per second, by program.",
				normal: "Below 2 each, more while nodes register.",
				do:     "The program with the large area: open its dashboard, row API server.",
			},
			unit:    units.RequestsPerSecond,
			lines:   []line{{sum("program", named(rate(anywhere("rest_client_requests_total")))), perProgram}},
			stacked: true,
			wide:    6,
		}.panel(),
		graph{
			title: "Requests that the API server refused or did not answer",
			about: about{
				shows:  "Requests per second, by program and status; conflicts and what was not found are left out.",
				normal: "None.",
				do:     "401, 403: token or role. 429: overload. 5xx, `<error>`: the API server or the way to it.",
			},
			unit: units.RequestsPerSecond,
			lines: []line{{
				sum("program, code", named(rate(anywhere("rest_client_requests_total", `code!~"[23]..|404|409"`)))), "{{program}}: {{code}}",
			}},
			wide: 6,
		}.panel(),
		graph{
			title: "Memory",
			about: about{
				shows:  "Memory held in RAM, by program and replica.",
				normal: "Constant for a number of nodes.",
				do:     "Growing for hours: keep the process and its log, and report it.",
			},
			unit:  units.BytesIEC,
			lines: []line{{highest("program, instance", named(anywhere("process_resident_memory_bytes"))), "{{program}} {{instance}}"}},
			wide:  6,
		}.panel(),
		graph{
			title: "CPU",
			about: about{
				shows:  "Processor time used per second, by program: 1 is one core.",
				normal: "Below 0.02 each.",
				do:     "Constantly more: open the program's dashboard, row reconcile.",
			},
			unit:  "cores",
			lines: []line{{sum("program", named(rate(anywhere("process_cpu_seconds_total")))), perProgram}},
			wide:  6,
		}.panel(),
	}}
}
