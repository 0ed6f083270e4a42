package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

func init() {
	boards = append(boards, board{
		name:        "overview",
		title:       "Quartet / Overview",
		description: "All of Quartet's controllers at a glance. Every program that reports ccm_build_info appears here.",
		rows:        []row{atAGlance(), work(), toTheCloud(), together()},
	})
}

// The label that `named` adds distinguishes the controllers.
const perProgram = "{{program}}"

// atAGlance shows red where an operator has to act.
func atAGlance() row {
	return row{title: "Status", panels: []panel{
		number{
			title: "Leaders",
			about: about{
				shows:  "Replicas that lead, for each program.",
				normal: "1 each.",
				do:     "0: no replica does the work; open the program's dashboard. 2: scrapes during a leader change, or two clusters with the same name.",
				alert:  "CCMNoLeader",
			},
			lines: []line{{sum("cluster, program", named(anywhere("leader_election_master_status"))), "{{program}} {{cluster}}"}},
			base:  red,
			steps: []step{{1, green}, {2, red}},
			none:  "no replica is seen",
			wide:  4,
			high:  5,
		}.panel(),
		number{
			title: "Replicas",
			about: about{
				shows:  "Replicas that Prometheus reaches, for each program.",
				normal: "2 each: a leader and a standby.",
				do:     "1: if this replica crashes, the work stops until a new one runs. Check the Deployment and its pods.",
				alert:  "CCMTargetDown",
			},
			lines: []line{{aggregate("count", "cluster, program", anywhere("ccm_build_info")), "{{program}} {{cluster}}"}},
			base:  red,
			steps: []step{{1, yellow}, {2, green}},
			none:  "no replica is seen",
			wide:  4,
			high:  5,
		}.panel(),
		number{
			title: "Configuration",
			about: about{
				shows:  "Whether each program's current configuration file is valid.",
				normal: "valid",
				do:     "`refused`: the old version stays in use; the log names the problem. Fix the file before the next restart.",
				alert:  "CCMConfigRefused",
			},
			lines: []line{{aggregate("min", "cluster, program", named(anywhere("ccm_config_valid"))), "{{program}} {{cluster}}"}},
			words: map[string]word{"0": {"refused", red}, "1": {"valid", green}},
			base:  grey,
			none:  "no replica is seen",
			wide:  4,
			high:  5,
		}.panel(),
		number{
			title: "Nodes waiting for initialisation",
			about: about{
				shows:  "Tainted nodes that node-ccm could not initialise yet.",
				normal: "0.",
				do:     "Open the dashboard of node-ccm, panel *Waiting nodes by reason*.",
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
				shows:  "Nodes that are not Ready and have no verdict (keep or delete) yet.",
				normal: "0; a few for up to half a minute.",
				do:     "Open the dashboard of lifecycle-ccm, panel *Time to verdict*.",
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
				shows:  "Open: lifecycle-ccm deletes only approved nodes, because the cloud's list of the fleet is not plausible.",
				normal: "closed",
				do:     "Check that the credentials belong to the right project and region. See the runbook.",
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
		number{
			title: "Nodes without routes",
			about: about{
				shows:  "Nodes that lack the route of a pod CIDR in the cloud, or have no pod CIDR. Only where route-ccm is installed.",
				normal: "0.",
				do:     "Open the dashboard of route-ccm, row *Routes of nodes*.",
				alert:  "RouteCCMNodesWithoutRoutes",
				page:   noRoute,
			},
			lines: []line{{highest("", sum(identity, anywhere("ccm_route_nodes", `state!="complete"`))), ""}},
			base:  green,
			steps: []step{{1, yellow}, {10, red}},
			none:  "not installed",
			wide:  3,
			high:  5,
		}.panel(),
		strip{
			title: "Leader over time",
			about: about{
				shows:  "Each replica of each program over time: leader or standby.",
				normal: "Exactly one replica of each program leads.",
				do:     "No replica leads: open the program's dashboard, row *Leadership and failover*.",
			},
			lines: []line{{named(anywhere("leader_election_master_status")), "{{program}} {{instance}}"}},
			words: map[string]word{"0": {"standby", grey}, "1": {"leads", green}},
			wide:  12,
		}.panel(),
		list{
			title: "Replicas",
			about: about{
				shows:  "Version and start time of each replica.",
				normal: "One version of each program, except during a rollout.",
				do:     "The start time is always recent: the replica crashes. Read the log of its last run (`kubectl logs --previous`).",
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

// work shows the latencies that users notice first.
func work() row {
	return row{title: "The work", panels: []panel{
		graph{
			title: "Time from registration to untaint",
			about: about{
				shows:  "Time from registration until pods could run on new nodes, in the last ten minutes: average and 99th percentile. The histogram's bounds are 1, 4, 16, 64, 256 and 1024 s; the percentile is between two of them.",
				normal: "Both at most 1 s. Creation times have a resolution of one second.",
				do:     "Open the dashboard of node-ccm.",
				page:   stays,
			},
			unit: units.Seconds,
			lines: []line{
				{average(long, "", anywhere(untaint+"_sum"), anywhere(untaint+"_count")), "on average"},
				{quantile(0.99, long, "", anywhere(untaint+"_bucket")), "99 %"},
			},
			bad:  []step{{16, red}},
			wide: 6,
		}.panel(),
		graph{
			title: "Time to verdict",
			about: about{
				shows:  "Time from not Ready to the verdict keep or delete, 99th percentile.",
				normal: "`keep`: seconds. `delete`: half a minute.",
				do:     "Open the dashboard of lifecycle-ccm.",
				page:   court,
			},
			unit:  units.Seconds,
			lines: []line{{quantile(0.99, long, "verdict", anywhere("ccm_lifecycle_time_to_verdict_seconds_bucket")), "{{verdict}}"}},
			wide:  6,
		}.panel(),
		graph{
			title: "Time from registration to routes",
			about: about{
				shows:  "Time from the creation of new nodes to all their routes in the cloud, in the last ten minutes: average and 99th percentile. Only where route-ccm is installed.",
				normal: "Some seconds.",
				do:     "Open the dashboard of route-ccm, row *Routes of nodes*.",
				page:   routes,
			},
			unit: units.Seconds,
			lines: []line{
				{average(long, "", anywhere("ccm_route_time_to_routes_seconds_sum"), anywhere("ccm_route_time_to_routes_seconds_count")), "on average"},
				{quantile(0.99, long, "", anywhere("ccm_route_time_to_routes_seconds_bucket")), "99 %"},
			},
			wide: 6,
		}.panel(),
		graph{
			title: "Nodes initialised and deleted",
			about: about{
				shows:  "Nodes that became schedulable, and nodes that were deleted, in five minutes.",
				normal: "Matches the changes by the autoscaler or by people.",
				do:     "Unexpected deletions: protect nodes with `quartet.dev/deletion-protected`, then look for the evidence in the log of lifecycle-ccm.",
				page:   court,
			},
			unit: units.Short,
			lines: []line{
				{times("", "[5m]", anywhere(untaint+"_count")), "initialised"},
				{times("", "[5m]", anywhere("ccm_lifecycle_time_to_deletion_seconds_count")), "deleted"},
			},
			wide: 6,
		}.panel(),
	}}
}

// toTheCloud shows the use of the cloud's quota by all programs.
func toTheCloud() row {
	return row{title: "The cloud", panels: []panel{
		graph{
			title: "Calls by program",
			about: about{
				shows:  "Requests to the cloud per second.",
				normal: "A lookup of all nodes once per period, few others.",
				do:     "The program with the largest area uses most of the quota: open its dashboard.",
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
				do:     "`throttled`: lower the rates. `unauthorized`, `forbidden`: fix the credentials. Otherwise: check the cloud.",
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
				do:     "At 100 %: open the program's dashboard, row *Rate limits*.",
				page:   "explanation/rate-limits.md",
			},
			unit: units.PercentUnit,
			lines: []line{{
				sum("program, api, class", named(rate(anywhere("ccm_limiter_wait_seconds_count", notAPIServer)))) +
					" / " + highest("program, api, class", named(anywhere("ccm_limiter_rate", notAPIServer))),
				"{{program}} {{class}}",
			}},
			bad:  []step{{1, red}},
			wide: 6,
		}.panel(),
		graph{
			title: "Time spent waiting for the budget",
			about: about{
				shows:  "Average time that a request to the cloud waited for the rate limit, in the last five minutes.",
				normal: "Milliseconds.",
				do:     "Seconds: the limit delays the work. Open the program's dashboard, row *Rate limits*.",
				page:   "explanation/rate-limits.md",
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

// together shows the load of the programs on the cluster.
func together() row {
	return row{title: "API server and machine", panels: []panel{
		graph{
			title: "Requests to the API server",
			about: about{
				shows:  "Requests per second, by program.",
				normal: "Below 2 each, more while nodes register.",
				do:     "Open the dashboard of the program with the largest area, row *API server*.",
			},
			unit:    units.RequestsPerSecond,
			lines:   []line{{sum("program", named(rate(anywhere("rest_client_requests_total")))), perProgram}},
			stacked: true,
			wide:    6,
		}.panel(),
		graph{
			title: "Failed requests to the API server",
			about: about{
				shows:  "Failed requests per second, by program and status, without conflicts and 404.",
				normal: "None.",
				do:     "401, 403: check token and role. 429: overload. 5xx, `<error>`: check the API server and the network path to it.",
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
				shows:  "Resident memory, by program and replica.",
				normal: "Constant for a given number of nodes.",
				do:     "Growing for hours: do not restart the process, save its log, and report it.",
			},
			unit:  units.BytesIEC,
			lines: []line{{highest("program, instance", named(anywhere("process_resident_memory_bytes"))), "{{program}} {{instance}}"}},
			wide:  6,
		}.panel(),
		graph{
			title: "CPU",
			about: about{
				shows:  "CPU use by program: 1 is one core.",
				normal: "Below 0.02 each.",
				do:     "Constantly more: open the program's dashboard, row *Reconcile*.",
			},
			unit:  "cores",
			lines: []line{{sum("program", named(rate(anywhere("process_cpu_seconds_total")))), perProgram}},
			wide:  6,
		}.panel(),
	}}
}
