package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

func init() {
	boards = append(boards, board{
		name:        "lifecycle-ccm",
		title:       "Quartet / lifecycle-ccm",
		description: "lifecycle-ccm removes nodes whose instance is proven gone, and nobody else.",
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
	court   = "deletion-court.md"
	breaker = "deletion-court.md#breaker"
)

// deletions is what must never go wrong.
func deletions() row {
	return row{title: "Deletions judged, and the breaker", panels: []panel{
		number{
			title: "Breaker",
			about: about{
				shows:  "Open: the cloud's list of the fleet is not believable, and no node is deleted but approved ones.",
				normal: "closed",
				do:     "Are the credentials those of the right project and region? Do the instances exist? If they are really gone, approve the nodes.",
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
				shows:  "How many more nodes may be deleted in the window that ends now (`--node-deletion-budget`).",
				normal: "More than 0.",
				do:     "0: convicted nodes wait. If so many instances are really gone, raise the budget in the ConfigMap; it is in force within seconds.",
				page:   "deletion-court.md#budget",
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
				shows:  "Deletions of nodes in five minutes, by what the API server said.",
				normal: "As many as instances were terminated, all `ok`.",
				do:     "`forbidden`: the ClusterRole lacks delete on nodes. `conflict`: the node changed; it is judged again. More `ok` than you know instances to be gone: protect nodes by `quartet.dev/deletion-protected`, then ask the log for the evidence.",
				page:   court,
			},
			unit:  units.Short,
			lines: []line{{times("result", "[5m]", of("ccm_lifecycle_deletions_total")), "{{result}}"}},
		}.panel(),
		graph{
			title: "Verdicts that hold back or delete",
			about: about{
				shows:  "What the court said about nodes whose instance the cloud denies, per second: each node counts at each hearing.",
				normal: "`suspect` while a terminated instance is confirmed, then `delete`.",
				do:     "`breaker_open`: see the breaker. `over_budget`: see the budget. `suspect listed`: lookup and list of the cloud contradict each other.",
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
				shows:  "When the breaker was open, by replica; only the leader's says something.",
				normal: "closed",
				do:     "See the panel of its openings for the cause.",
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
				shows:  "How often the breaker opened, in an hour.",
				normal: "None.",
				do:     "The cause says what the list showed: nothing of ours, too few of the nodes, or too few of the Ready ones.",
				page:   breaker,
			},
			unit:  units.Short,
			lines: []line{{some(times("cause", "[1h]", of("ccm_lifecycle_breaker_openings_total"))), "{{cause}}"}},
		}.panel(),
		graph{
			title: "Budget",
			about: about{
				shows:  "Nodes deleted in the window that ends now, and how many may be.",
				normal: "Used far below the limit.",
				do:     "At the limit: convicted nodes wait until the window has moved on.",
				page:   "deletion-court.md#budget",
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

// verdicts is about nodes that wait to be judged: the queue of this controller.
func verdicts() row {
	return row{title: "Queue: nodes to be judged, and time to verdict", panels: []panel{
		graph{
			title: "Undecided nodes",
			about: about{
				shows:  "Nodes that are not Ready and about which is not known what to do; those of them that the cloud denied once.",
				normal: "0; a node that exists is decided with the next answer, one that is gone within half a minute.",
				do:     "For minutes: the cloud does not answer, or breaker or budget hold. See the verdicts.",
				page:   court,
			},
			unit: units.Short,
			lines: []line{
				{sum("", of("ccm_lifecycle_nodes", `state="undecided"`)), "undecided"},
				{sum("", of("ccm_lifecycle_nodes", `state="suspected"`)), "denied by the cloud"},
			},
		}.panel(),
		graph{
			title: "Longest wait for a verdict",
			about: about{
				shows:  "How long the node that has waited longest has waited, and how long the oldest open case is: a node that the cloud has denied.",
				normal: "0, and up to the confirmation period (20 s) while an instance is gone; the grace period (2 min) for new nodes.",
				do:     "Rising: the cloud does not answer, or breaker or budget hold. See the verdicts.",
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
				shows:  "From seeing that a node is not Ready to knowing whether to keep or to delete it: half of them, and 99 of 100, waited less.",
				normal: "`keep`: seconds. `delete`: half a minute (confirmation 20 s).",
				do:     "Longer: the cloud answers slowly or not at all; see its times and errors.",
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
				shows:  "Nodes as the leader sees them; `suspected` and `undecided` ones are `watched`, too.",
				normal: "`ready`.",
				do:     "`watched`: not Ready; find out why their kubelets are silent. `foreign`: another provider's; never judged. `not_selected`: `--node-selector` leaves them out.",
				page:   "lifecycle-ccm.md",
			},
			unit:  units.Short,
			lines: []line{{sum("state", of("ccm_lifecycle_nodes")), "{{state}}"}},
			wide:  12,
		}.panel(),
		graph{
			title: "From the cloud's first denial to the deletion",
			about: about{
				shows:  "How long nodes that were deleted had been denied by the cloud: half of them, and 99 of 100, less.",
				normal: "20 to 30 s with the default confirmation period.",
				do:     "Longer: breaker or budget held them, or the API server refused.",
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

// passes is what the controller does, whatever comes of it.
func passes() row {
	return row{title: "Reconcile: rate, errors, latency", panels: []panel{
		graph{
			title: "Passes",
			about: about{
				shows:  "Passes over the nodes that are not Ready, per second.",
				normal: "None while all nodes are Ready; else one per monitor period (0.2 per second).",
				do:     "None although nodes are not Ready: does anybody lead?",
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
				shows:  "How long a pass took, the cloud's answers and the writes included.",
				normal: "What the cloud takes to answer.",
				do:     "At the time-out (30 s): the cloud hangs. Evidence that comes too late does not count.",
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
				shows:  "What the cloud said about single nodes, per second.",
				normal: "`success`: the instance exists. `instance_not_found` once an instance is terminated.",
				do:     "`instance_not_found` for machines that run: wrong project or region. Kinds of errors: see the calls to the cloud; nothing is deleted by them.",
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
				shows:  "Writes of the taint of nodes whose machine is shut down, in five minutes, by action and result.",
				normal: "`add: ok` when a machine is stopped, `remove: ok` when it runs again.",
				do:     "`forbidden`: the ClusterRole lacks patch on nodes. Adding and removing in turns: the cloud's power state flaps.",
				page:   "lifecycle-ccm.md",
			},
			unit:  units.Short,
			lines: []line{{times("action, result", "[5m]", of("ccm_lifecycle_taints_total")), "{{action}}: {{result}}"}},
			wide:  6,
		}.panel(),
	}}
}
