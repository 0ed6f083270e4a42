package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

func init() {
	boards = append(boards, board{
		name:        "lifecycle-ccm",
		title:       "Quartet / lifecycle-ccm",
		description: "lifecycle-ccm deletes nodes whose instance is proven gone, and no others.",
		program:     "lifecycle-ccm",
		rows: []row{
			deletions(),
			verdicts(),
			passes(),
			cloudCalls(),
			limits(),
			leadership(),
			apiServer(),
			process(),
			openStack(),
		},
	})
}

const (
	court   = "explanation/deletion-court.md"
	breaker = "explanation/deletion-court.md#breaker"
)

// deletions shows deletions, the breaker and the budget.
func deletions() row {
	return row{title: "Deletions and breaker", panels: []panel{
		number{
			title: "Breaker",
			about: about{
				shows:  "Open: the cloud's list of the fleet is not plausible, and lifecycle-ccm deletes only approved nodes.",
				normal: "closed",
				do:     "Check that the credentials belong to the right project and region, and whether the instances exist. If they are really gone, approve the nodes.",
				alert:  "LifecycleCCMBreakerOpen",
				page:   breaker,
			},
			lines: []line{{highest("", of("ccm_lifecycle_breaker_open")), ""}},
			words: map[string]word{"0": {"closed", green}, "1": {"open", red}},
			base:  grey,
			none:  "no replica is seen",
			high:  8,
		}.panel(),
		number{
			title: "Budget left",
			about: about{
				shows:  "Number of deletions left in the current window (`--node-deletion-budget`).",
				normal: "More than 0.",
				do:     "0: nodes with the verdict delete wait. If that many instances are really gone, raise the budget in the ConfigMap; it takes effect within seconds.",
				page:   "explanation/deletion-court.md#budget",
			},
			unit: units.Short,
			lines: []line{{
				highest("", of("ccm_lifecycle_budget_limit")) + " - " + highest("", of("ccm_lifecycle_budget_used")), "",
			}},
			base:  red,
			steps: []step{{1, green}},
			none:  "no replica is seen",
			high:  8,
		}.panel(),
		graph{
			title: "Deletions",
			about: about{
				shows:  "Deletions of nodes in five minutes, by result.",
				normal: "As many as terminated instances, all `ok`.",
				do:     "`forbidden`: the ClusterRole lacks delete on nodes. `conflict`: the node changed; lifecycle-ccm decides again. More `ok` than terminated instances: protect nodes with `quartet.dev/deletion-protected`, then look for the evidence in the log.",
				page:   court,
			},
			unit:  units.Short,
			lines: []line{{times("result", "[5m]", of("ccm_lifecycle_deletions_total")), "{{result}}"}},
		}.panel(),
		graph{
			title: "Verdicts that hold back or delete",
			about: about{
				shows:  "Verdicts on nodes whose instance the cloud reports as gone, per second. Each pass counts each node once.",
				normal: "`suspect` while lifecycle-ccm confirms a terminated instance, then `delete`.",
				do:     "`breaker_open`: see *Breaker*. `over_budget`: see *Budget*. `suspect listed`: lookup and list of the cloud contradict each other.",
				page:   court,
			},
			unit: units.Short,
			lines: []line{{
				some(sum("verdict, reason", rate(of("ccm_lifecycle_verdicts_total", `verdict!="keep"`)))), "{{verdict}} {{reason}}",
			}},
			stacked: true,
		}.panel(),
		strip{
			title: "Breaker over time",
			about: about{
				shows:  "State of the breaker over time, on the leader.",
				normal: "closed",
				do:     "See *Openings of the breaker, by cause*.",
				page:   breaker,
			},
			lines: []line{{of("ccm_lifecycle_breaker_open") + leading(), "{{instance}}"}},
			words: map[string]word{"0": {"closed", green}, "1": {"open", red}},
			wide:  8,
			high:  8,
		}.panel(),
		graph{
			title: "Openings of the breaker, by cause",
			about: about{
				shows:  "Openings of the breaker in an hour, by cause.",
				normal: "None.",
				do:     "The cause describes the cloud's list: no instance of the cluster, too few of the nodes, or too few of the Ready nodes.",
				page:   breaker,
			},
			unit:  units.Short,
			lines: []line{{some(times("cause", "[1h]", of("ccm_lifecycle_breaker_openings_total"))), "{{cause}}"}},
		}.panel(),
		graph{
			title: "Budget",
			about: about{
				shows:  "Nodes deleted in the current window, and the limit.",
				normal: "Used far below the limit.",
				do:     "At the limit: nodes with the verdict delete wait until the window has moved on.",
				page:   "explanation/deletion-court.md#budget",
			},
			unit: units.Short,
			lines: []line{
				{highest("", of("ccm_lifecycle_budget_used")), "used"},
				{highest("", of("ccm_lifecycle_budget_limit")), "limit"},
			},
		}.panel(),
	}}
}

// leading keeps the series of replicas that lead.
func leading() string {
	leads := of("leader_election_master_status") + " == 1"
	return " and on (" + identity + ") (" + leads + ")"
}

// verdicts shows the nodes without a verdict: the queue of this controller.
func verdicts() row {
	return row{title: "Queue: undecided nodes, and time to verdict", panels: []panel{
		graph{
			title: "Undecided nodes",
			about: about{
				shows:  "Nodes that are not Ready and have no verdict yet; and how many of them have an answer \"gone\".",
				normal: "0. An existing instance is decided with the next answer, a deleted one within half a minute.",
				do:     "More for minutes: the cloud does not answer, or breaker or budget hold the nodes. See *Verdicts that hold back or delete*.",
				page:   court,
			},
			unit: units.Short,
			lines: []line{
				{sum("", of("ccm_lifecycle_nodes", `state="undecided"`)), "undecided"},
				{sum("", of("ccm_lifecycle_nodes", `state="suspected"`)), "reported gone"},
				{sum("", of("ccm_lifecycle_nodes", `state="replaced"`)), "on a replaced machine"},
				{sum("", of("ccm_lifecycle_nodes", `state="marked"`)), "marked for scale-down"},
			},
		}.panel(),
		graph{
			title: "Longest wait for a verdict",
			about: about{
				shows:  "Longest current wait for a verdict, and age of the oldest open case (a node that the cloud reported as gone).",
				normal: "0; up to the confirmation period (20 s) for a deleted instance; up to the grace period (2 min) for new nodes.",
				do:     "Rising: the cloud does not answer, or breaker or budget hold the nodes. See *Verdicts that hold back or delete*.",
				alert:  "LifecycleCCMDeletionsHeld",
				page:   court,
			},
			unit: units.Seconds,
			lines: []line{
				{highest("", of("ccm_lifecycle_longest_wait_seconds")), "longest wait"},
				{highest("", of("ccm_lifecycle_oldest_case_seconds")), "oldest case"},
			},
			bad: []step{{300, red}},
		}.panel(),
		graph{
			title: "Time to verdict",
			about: about{
				shows:  "Time from not Ready to the verdict keep or delete: median and 99th percentile.",
				normal: "`keep`: seconds. `delete`: half a minute (confirmation 20 s).",
				do:     "Longer: the cloud answers slowly or not at all; see row *Calls to the cloud*.",
				page:   court,
			},
			unit: units.Seconds,
			lines: []line{
				{quantile(0.5, long, "verdict", of("ccm_lifecycle_time_to_verdict_seconds_bucket")), "{{verdict}}: half of them"},
				{quantile(0.99, long, "verdict", of("ccm_lifecycle_time_to_verdict_seconds_bucket")), "{{verdict}}: 99 %"},
			},
		}.panel(),
		graph{
			title: "Nodes by state",
			about: about{
				shows:  "All nodes, as seen by the leader. `suspected`, `replaced` and `undecided` nodes are also counted as `watched`. `left over`: nodes with a taint that nothing removes.",
				normal: "`ready`.",
				do:     "`watched`: not Ready; check their kubelets. `foreign`: nodes of another provider; lifecycle-ccm never deletes them. `not_selected`: excluded by `--node-selector`. `left over`: see the event TaintLeftOver.",
				page:   "explanation/lifecycle-ccm.md",
			},
			unit: units.Short,
			lines: []line{
				{sum("state", of("ccm_lifecycle_nodes")), "{{state}}"},
				{sum("taint", of("ccm_left_over_taints")), "left over: {{taint}}"},
			},
			wide: 12,
		}.panel(),
		graph{
			title: "Time from the first answer \"gone\" to the deletion",
			about: about{
				shows:  "Time from the cloud's first answer \"gone\" to the deletion of the node: median and 99th percentile.",
				normal: "20 to 30 s with the default confirmation period.",
				do:     "Longer: breaker or budget held the nodes, or the API server refused the deletion.",
				page:   court,
			},
			unit: units.Seconds,
			lines: []line{
				{quantile(0.5, long, "", of("ccm_lifecycle_time_to_deletion_seconds_bucket")), "half of them"},
				{quantile(0.99, long, "", of("ccm_lifecycle_time_to_deletion_seconds_bucket")), "99 %"},
			},
			wide: 12,
		}.panel(),
	}}
}

// passes shows the work of the controller.
func passes() row {
	return row{title: "Reconcile: rate, errors, latency", panels: []panel{
		graph{
			title: "Passes",
			about: about{
				shows:  "Passes over the nodes that are not Ready, per second.",
				normal: "None while all nodes are Ready; else one per monitor period (0.2 per second).",
				do:     "None although nodes are not Ready: check that a replica leads.",
				alert:  "LifecycleCCMStalled",
			},
			unit: units.Short,
			lines: []line{{
				sum("", rate(of("cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count"))), "passes",
			}},
			wide: 6,
		}.panel(),
		graph{
			title: "Time of a pass",
			about: about{
				shows:  "Duration of a pass, including the cloud's answers and the writes.",
				normal: "The cloud's response time.",
				do:     "At the timeout (30 s): the cloud hangs. Late evidence does not count.",
			},
			unit: units.Seconds,
			lines: []line{
				{quantile(0.5, short, "", of("cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_bucket")), "half of them"},
				{quantile(0.99, short, "", of("cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_bucket")), "99 %"},
			},
			wide: 6,
		}.panel(),
		graph{
			title: "Answers about nodes",
			about: about{
				shows:  "Answers of the cloud about single nodes, per second.",
				normal: "`success`: the instance exists. `instance_not_found` after an instance is terminated.",
				do:     "`instance_not_found` for running machines: wrong project or region. Errors: see row *Calls to the cloud*; errors never cause a deletion.",
				page:   court,
			},
			unit: units.Short,
			lines: []line{{
				sum("result", rate(of("cloud_node_lifecycle_controller_cloud_provider_calls_total"))), "{{result}}",
			}},
			wide: 6,
		}.panel(),
		graph{
			title: "Shutdown taint",
			about: about{
				shows:  "Writes of the shutdown taint in five minutes, by action and result.",
				normal: "`add: ok` when a machine is stopped, `remove: ok` when it runs again.",
				do:     "`forbidden`: the ClusterRole lacks patch on nodes. Alternating `add` and `remove`: the cloud's power state flaps.",
				page:   "explanation/lifecycle-ccm.md",
			},
			unit:  units.Short,
			lines: []line{{times("action, result", "[5m]", of("ccm_lifecycle_taints_total")), "{{action}}: {{result}}"}},
			wide:  6,
		}.panel(),
	}}
}
