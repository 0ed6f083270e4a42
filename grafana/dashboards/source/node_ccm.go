package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

func init() {
	boards = append(boards, board{
		name:        "node-ccm",
		title:       "Quartet / node-ccm",
		description: "node-ccm makes new nodes schedulable and keeps them true to their instances.",
		program:     "node-ccm",
		rows: []row{
			registration(),
			nodeWork(),
			queue(),
			cloudCalls(),
			limits(),
			leadership(),
			apiServer(),
			process(),
			openStack(),
		},
	})
}

// untaint is upstream's histogram: from the creation of a node to the end of its taint.
const untaint = "node_controller_cloud_provider_taint_removal_delay_seconds"

const stays = "node-ccm.md#when-a-node-stays-tainted"

// registration is what people wait for: from a node's registration to its first pod.
func registration() row {
	return row{title: "Registration to untaint", panels: []panel{
		number{
			title: "Nodes that wait",
			about: about{
				shows:  "Tainted nodes that something keeps from being initialised: no pod is scheduled there.",
				normal: "0.",
				do:     "The panel beside it says what they wait for, and `kubectl describe node` why.",
				alert:  "NodeCCMManyNodesWaiting",
				page:   stays,
			},
			lines: []line{{orZero(sum("", of("ccm_node_waiting"))), ""}},
			base:  green,
			steps: []step{{1, yellow}, {10, red}},
			high:  8,
		}.panel(),
		number{
			title: "Longest wait",
			about: about{
				shows:  "How long the node that has waited longest to be initialised has been there.",
				normal: "0.",
				do:     "Minutes: somebody waits for that node. What it waits for is beside this, why says `kubectl describe node`.",
				page:   stays,
				alert:  "NodeCCMNodeWaiting",
			},
			unit:  units.Seconds,
			lines: []line{{highest("", of("ccm_node_oldest_waiting_seconds")), ""}},
			base:  green,
			steps: []step{{60, yellow}, {600, red}},
			none:  "no replica is seen",
			high:  8,
		}.panel(),
		graph{
			title: "What nodes wait for",
			about: about{
				shows:  "Tainted nodes that wait, by what for.",
				normal: "None.",
				do:     "`throttled`: it passes; see the limits. `unauthorized`, `forbidden`: the credentials. `instance_not_found`: names or IDs of nodes are not the cloud's. `node_ip`: the kubelet's `--node-ip`. `api_server`: the role, or the API server.",
				page:   stays,
			},
			unit:    units.Short,
			lines:   []line{{some(sum("reason", of("ccm_node_waiting"))), "{{reason}}"}},
			stacked: true,
			wide:    8,
		}.panel(),
		graph{
			title: "Time from registration to untaint",
			about: about{
				shows:  "How long nodes that were initialised in the last ten minutes had waited since their creation: on average, and the 99 % that waited less. The bounds of the measurement are 1, 4, 16, 64, 256 and 1024 s, as upstream has them: the second says between which two.",
				normal: "Both at most 1 s; a creation time is in whole seconds, so nothing finer can be said.",
				do:     "Above 4 s: see what nodes wait for, then the times of the cloud and of the API server.",
				alert:  "NodeCCMRegistrationTooSlow",
				page:   stays,
			},
			unit: units.Seconds,
			lines: []line{
				{average(long, "", of(untaint+"_sum"), of(untaint+"_count")), "on average"},
				{quantile(0.99, long, "", of(untaint+"_bucket")), "99 %"},
			},
			bad:  []step{{16, red}},
			wide: 8,
		}.panel(),
		graph{
			title: "Nodes by state",
			about: about{
				shows:  "All nodes as the leader sees them.",
				normal: "All `initialised`.",
				do:     "`instance_gone`: lifecycle-ccm's matter. `foreign`, `not_ours`: another provider's; they are left alone, so another controller must run. `unknown` for minutes: the cloud has not answered about them.",
				page:   "node-ccm.md",
			},
			unit:    units.Short,
			lines:   []line{{some(sum("state", of("ccm_node_nodes"))), "{{state}}"}},
			stacked: true,
			wide:    12,
		}.panel(),
		graph{
			title: "Nodes initialised",
			about: about{
				shows:  "Nodes that lost the taint, in five minutes.",
				normal: "As many as the autoscaler or people added.",
				do:     "0 while nodes wait: see what they wait for, and whether anybody leads.",
			},
			unit: units.Short,
			lines: []line{{
				times("", "[5m]", of(untaint+"_count")), "initialised",
			}},
			wide: 12,
		}.panel(),
	}}
}

// nodeWork is what node-ccm does about nodes.
func nodeWork() row {
	return row{title: "Reconcile: rate, errors, latency", panels: []panel{
		graph{
			title: "Reconciles",
			about: about{
				shows:  "Nodes that a worker took up, per second, and those that are to come again after a failure or by plan.",
				normal: "Nearly nothing: nodes that do not change cost no work.",
				do:     "Constantly more: something changes nodes all the time, or they fail and come again. The log of the leader names them.",
			},
			unit: "nodes/s",
			lines: []line{
				{sum("", rate(of("workqueue_work_duration_seconds_count"))), "taken up"},
				{sum("", rate(of("workqueue_retries_total"))), "come again"},
			},
		}.panel(),
		graph{
			title: "Time of a reconcile",
			about: about{
				shows:  "How long a worker kept a node, the cloud's answer included. The bounds of the measurement are powers of ten: read the order of magnitude.",
				normal: "Below a second.",
				do:     "As long as the cloud takes to answer, or the API server: see both.",
			},
			unit: units.Seconds,
			lines: []line{
				{quantile(0.5, short, "", of("workqueue_work_duration_seconds_bucket")), "half of them"},
				{quantile(0.99, short, "", of("workqueue_work_duration_seconds_bucket")), "99 %"},
			},
		}.panel(),
		graph{
			title: "Writes to nodes",
			about: about{
				shows:  "Writes per second, by kind and result.",
				normal: "Two for each new node, all `ok`. `conflict` now and then: somebody else wrote first, and the node is planned again.",
				do:     "`forbidden`: the ClusterRole. `invalid`: the cloud says something that the API server does not take; the event on the node has the words.",
				page:   "node-ccm.md#rights",
			},
			unit:  units.Short,
			lines: []line{{sum("kind, result", rate(of("ccm_node_writes_total"))), "{{kind}}: {{result}}"}},
		}.panel(),
		graph{
			title: "Answers about nodes",
			about: about{
				shows:  "What the cloud said about single nodes, per second.",
				normal: "`found`.",
				do:     "`gone` for nodes that exist: wrong project or region in the credentials. Kinds of errors: see the calls to the cloud.",
			},
			unit:  units.Short,
			lines: []line{{sum("answer", rate(of("ccm_node_answers_total"))), "{{answer}}"}},
		}.panel(),
		graph{
			title: "Lists of the fleet",
			about: about{
				shows:  "Lists of the fleet in 15 minutes, by result: by them addresses and labels are kept true.",
				normal: "Three in 15 minutes, `ok`.",
				do:     "Errors: see the calls to the cloud. Nodes keep their old addresses meanwhile.",
			},
			unit:  units.Short,
			lines: []line{{times("result", "[15m]", of("ccm_node_refreshes_total")), "{{result}}"}},
		}.panel(),
		graph{
			title: "Nodes that differ from the last list",
			about: about{
				shows:  "Nodes that were not as their instance when the fleet was last listed; each is looked at again.",
				normal: "0, and a few when instances change.",
				do:     "The same number with each list: something writes these nodes against us (another cloud controller?), or writes fail.",
			},
			unit:  units.Short,
			lines: []line{{sum("", of("ccm_node_refresh_differing")), "differ"}},
		}.panel(),
		graph{
			title: "Labels that were left out, InternalIPs that changed",
			about: about{
				shows:  "In an hour: labels of the cloud that were left out, by reason; nodes that were Ready when the cloud named another first InternalIP, by what was done.",
				normal: "None.",
				do:     "`invalid`: the cloud's value is no legal label; the event names it. An InternalIP that changes breaks connections of a running node: ask who changed the instance's network; `--node-internal-ip-change=hold` keeps the old one.",
				page:   "node-ccm.md",
			},
			unit: units.Short,
			lines: []line{
				{some(times("reason", "[1h]", of("ccm_node_label_drops_total"))), "label: {{reason}}"},
				{some(times("result", "[1h]", of("ccm_node_internal_ip_changes_total"))), "InternalIP: {{result}}"},
			},
			wide: 24,
		}.panel(),
	}}
}
