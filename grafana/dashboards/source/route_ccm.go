package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

func init() {
	boards = append(boards, board{
		name:        "route-ccm",
		title:       "Quartet / route-ccm",
		description: "route-ccm gives each node the routes of its pod CIDRs in the cloud, and the pod CIDRs themselves with --allocate-node-cidrs.",
		program:     "route-ccm",
		rows: []row{
			podRoutes(),
			routeTable(),
			podCIDRs(),
			queue(),
			cloudCalls(),
			limits(),
			leadership(),
			apiServer(),
			process(),
		},
	})
}

const (
	routes  = "explanation/route-ccm.md"
	noRoute = "how-to/troubleshoot.md#a-node-has-no-route"
)

// podRoutes shows whether nodes have their routes, and how fast they get them.
func podRoutes() row {
	return row{title: "Routes of nodes", panels: []panel{
		number{
			title: "Nodes without routes",
			about: about{
				shows:  "Nodes that lack the route of a pod CIDR, or have no pod CIDR.",
				normal: "0; for some seconds as many as nodes that registered at once.",
				do:     "`kubectl describe node`: the condition NetworkUnavailable and the events say why. Without a pod CIDR: see row *Node IPAM*, or kube-controller-manager.",
				alert:  "RouteCCMNodesWithoutRoutes",
				page:   noRoute,
			},
			unit:  units.Short,
			lines: []line{{highest("", sum(identity, of("ccm_route_nodes", `state!="complete"`))), ""}},
			base:  green,
			steps: []step{{1, yellow}, {10, red}},
			none:  "no replica is seen",
			high:  8,
		}.panel(),
		number{
			title: "Held by the brake",
			about: about{
				shows:  "Deletions and replacements of routes that wait, because too many nodes went or moved at once, because the API server lists no node, because they are inside `--cluster-cidr` only since that was changed, or because `--node-selector` leaves their nodes out.",
				normal: "0.",
				do:     "Check that these nodes are really gone, then approve, or wait: the rest goes window by window. What only a change of `--cluster-cidr` makes this cluster's waits for a person.",
				alert:  "RouteCCMRoutesHeld",
				page:   "explanation/brakes.md#routes",
			},
			unit:  units.Short,
			lines: []line{{highest("", of("ccm_route_changes_held")), ""}},
			base:  green,
			steps: []step{{1, red}},
			none:  "no replica is seen",
			high:  8,
		}.panel(),
		graph{
			title: "Nodes by state of their routes",
			about: about{
				shows:  "Nodes by the state of their routes, on the leader. `another_provider` and `not_selected`: nodes that get no routes. `left over`: nodes with a condition of an earlier controller that keeps pods away. `too_wide`, `wider_than_most`, `id_of_another_node`, `address_of_another_node`: pod CIDRs that get no route because of what their nodes say.",
				normal: "`complete`: all nodes of this provider.",
				do:     "`incomplete`: see the nodes' condition NetworkUnavailable. `without_pod_cidrs`: no program gives them pod CIDRs. `not_selected`: check `--node-selector`. `left over`: see the event NetworkUnavailableLeftOver.",
				alert:  "RouteCCMNodesWithoutRoutes",
				page:   "reference/conditions.md#nodes",
			},
			unit: units.Short,
			lines: []line{
				{highest("state", of("ccm_route_nodes")), "{{state}}"},
				{highest("reason", of("ccm_route_nodes_left_out")), "{{reason}}"},
				{highest("", of("ccm_route_conditions_left_over")), "left over"},
				{highest("reason", of("ccm_route_pod_cidrs_refused")), "{{reason}}"},
			},
			stacked: true,
		}.panel(),
		graph{
			title: "Longest wait for a route",
			about: about{
				shows:  "Time for which the node that waits longest has lacked a route.",
				normal: "0, or the duration of one call to the cloud.",
				do:     "Minutes: see the event FailedToCreateRoute of the nodes, and *Changes of routes*.",
				alert:  "RouteCCMNodesWithoutRoutes",
				page:   noRoute,
			},
			unit:  units.Seconds,
			lines: []line{{highest("", of("ccm_route_longest_wait_seconds")), "longest wait"}},
			bad:   []step{{600, red}},
		}.panel(),
		graph{
			title: "Time from registration to routes",
			about: about{
				shows:  "Time from the creation of a node to all its routes, of nodes created while this leader leads: average, median and 99th percentile in ten minutes.",
				normal: "Two seconds and one call to the cloud, plus the time until the node has its pod CIDR and its provider ID.",
				do:     "Look at *Cloud calls*, at *Rate limits*, and at what the nodes wait for: pod CIDR, provider ID, address.",
				page:   routes,
			},
			unit: units.Seconds,
			lines: []line{
				{average(long, "", of("ccm_route_time_to_routes_seconds_sum"), of("ccm_route_time_to_routes_seconds_count")), "on average"},
				{quantile(0.5, long, "", of("ccm_route_time_to_routes_seconds_bucket")), "median"},
				{quantile(0.99, long, "", of("ccm_route_time_to_routes_seconds_bucket")), "99 %"},
			},
			wide: 12,
		}.panel(),
		graph{
			title: "Writes of the condition",
			about: about{
				shows:  "Writes of the condition NetworkUnavailable in five minutes, by result at the API server.",
				normal: "One for each new node, `ok`.",
				do:     "`conflict`: others write the same nodes; it is tried again. `forbidden`: the ClusterRole is too small. Many `ok` without new nodes: another component sets the condition to the other status again and again.",
				page:   "reference/conditions.md#nodes",
			},
			unit:  units.Short,
			lines: []line{{times("result", "[5m]", of("ccm_route_condition_writes_total")), "{{result}}"}},
			wide:  12,
		}.panel(),
	}}
}

// routeTable shows the table in the cloud, and what is changed in it.
func routeTable() row {
	return row{title: "Route table", panels: []panel{
		number{
			title: "Room in the table",
			about: about{
				shows:  "Routes that can be added before the quota of the table is reached, if the cloud says so.",
				normal: "More than the nodes that may join.",
				do:     "Raise the quota of the cloud project or of the table. 0: new nodes get no route.",
				alert:  "RouteCCMRouteTableFull",
				page:   noRoute,
			},
			unit:  units.Short,
			lines: []line{{aggregate("min", "", of("ccm_route_table_room")), ""}},
			base:  red,
			steps: []step{{1, yellow}, {10, green}},
			none:  "the cloud does not say",
			high:  8,
		}.panel(),
		number{
			title: "Foreign routes",
			about: about{
				shows:  "Routes inside `--cluster-cidr` that are not this cluster's, by the recorded UID too, or whose target is unknown. route-ccm does not touch them.",
				normal: "0, unless clusters share a table and a range, or people add routes of their own.",
				do:     "A node whose pod CIDR has such a route to elsewhere does not get a route: its condition names the foreign one. Remove the route, or recreate the node. As many as nodes, `other_uid` in *Routes by kind*: check `--cluster-uid`.",
				alert:  "RouteCCMRoutesOfAnotherCluster",
				page:   "explanation/ownership.md#who-owns-a-route",
			},
			unit:  units.Short,
			lines: []line{{highest("", sum(identity, of("ccm_route_routes", `kind=~"foreign|unknown|other_uid"`))), ""}},
			base:  green,
			steps: []step{{1, yellow}},
			none:  "no replica is seen",
			high:  8,
		}.panel(),
		graph{
			title: "Routes by kind",
			about: about{
				shows:  "Routes of the table by kind, on the leader.",
				normal: "`ours`: one for each pod CIDR. `other_networks`: routes outside of `--cluster-cidr`.",
				do:     "`defective`: the cloud says that the route carries no traffic, see the node's condition. `unknown`: the cloud is asked about their targets. `foreign`: see *Foreign routes*.",
				page:   "explanation/ownership.md#who-owns-a-route",
			},
			unit:  units.Short,
			lines: []line{{highest("kind", of("ccm_route_routes")), "{{kind}}"}},
		}.panel(),
		graph{
			title: "Changes of routes",
			about: about{
				shows:  "Changes of routes in five minutes, by result in the cloud.",
				normal: "`create`: one for each pod CIDR of a new node. `delete`: one for each of a node that is gone. All `ok`; `busy` where others change the table; `pending` where the cloud is still making a change.",
				do:     "Others are kinds of errors of the cloud: the event FailedToCreateRoute of the node and the log have the cloud's message.",
				alert:  "RouteCCMRoutesFailing",
				page:   noRoute,
			},
			unit:  units.Short,
			lines: []line{{some(times("operation, result", "[5m]", of("ccm_route_changes_total"))), "{{operation}} {{result}}"}},
		}.panel(),
		graph{
			title: "Lists of the route table",
			about: about{
				shows:  "Lists of the route table in thirty minutes, by result.",
				normal: "Three (`--route-reconciliation-period`), `ok`; one more after a change by others.",
				do:     "While lists fail, what others changed in the table is not repaired, and a leader that has seen no list changes nothing. See `/readyz?verbose`.",
				alert:  "RouteCCMListsFailing",
				page:   routes + "#routes",
			},
			unit:  units.Short,
			lines: []line{{times("result", "[30m]", of("ccm_route_lists_total")), "{{result}}"}},
		}.panel(),
		graph{
			title: "Comparisons of the table with the nodes",
			about: about{
				shows:  "Comparisons in five minutes: `periodic` by a list, `event` by a call that changes routes; by outcome. Upstream's metric.",
				normal: "`event` follows the changes of nodes. `success`.",
				do:     "`error`: see *Changes of routes* and *Lists of the route table*.",
				alert:  "RouteCCMRoutesFailing",
				page:   routes,
			},
			unit:  units.Short,
			lines: []line{{times("trigger, outcome", "[5m]", of("route_controller_route_sync_total")), "{{trigger}} {{outcome}}"}},
		}.panel(),
		graph{
			title: "Moments without a route",
			about: about{
				shows:  "Replacements in an hour by a cloud that cannot replace a route in one step: for a moment the destination had no route.",
				normal: "0; a node that changes its address, or a pod CIDR that moves to another node, is one each.",
				do:     "Many: find out what changes the addresses of nodes.",
				page:   routes + "#routes",
			},
			unit:  units.Short,
			lines: []line{{times("", "[1h]", of("ccm_route_gaps_total")), "gaps"}},
		}.panel(),
	}}
}

// podCIDRs shows the allocation of pod CIDRs, for clusters where route-ccm does it.
func podCIDRs() row {
	const off = "node IPAM is off"
	return row{title: "Node IPAM", panels: []panel{
		number{
			title: "Blocks in use",
			about: about{
				shows:  "Share of the blocks of each cluster CIDR that is taken: by nodes, by routes, and by nodes that are gone and whose routes are not.",
				normal: "Below 90 %.",
				do:     "Use a larger `--cluster-cidr` before it is full: see how a range is extended. At 100 % new nodes get no pod CIDR.",
				alert:  "RouteCCMCIDRsExhausted",
				page:   "how-to/routes.md#extend-a-range",
			},
			unit:  units.PercentUnit,
			lines: []line{{highest("clusterCIDR", of("node_ipam_controller_cidrset_usage_cidrs")), "{{clusterCIDR}}"}},
			base:  green,
			steps: []step{{0.9, yellow}, {1, red}},
			none:  off,
			high:  8,
		}.panel(),
		number{
			title: "Another allocator",
			about: about{
				shows:  "Whether the allocator has stopped because another program gives nodes pod CIDRs as well.",
				normal: "none",
				do:     "Switch node IPAM off in one of the two programs. route-ccm goes on when a node has waited for five minutes, or after a restart.",
				alert:  "RouteCCMRivalAllocator",
				page:   routes + "#another-allocator",
			},
			lines: []line{{highest("", of("ccm_ipam_stopped")), ""}},
			words: map[string]word{"0": {"none", green}, "1": {"found: stopped", red}},
			base:  grey,
			none:  off,
			high:  8,
		}.panel(),
		number{
			title: "Nodes that get no pod CIDR",
			about: about{
				shows:  "Nodes that get no pod CIDR now: no block is free, or the cloud does not name one for their instance.",
				normal: "0.",
				do:     "The event CIDRNotAvailable of the node says why.",
				alert:  "RouteCCMNodesWithoutPodCIDRs",
				page:   "how-to/troubleshoot.md#a-node-has-no-pod-cidr",
			},
			unit:  units.Short,
			lines: []line{{highest("", of("ccm_ipam_nodes_waiting")), ""}},
			base:  green,
			steps: []step{{1, red}},
			none:  off,
			high:  8,
		}.panel(),
		number{
			title: "Blocks of nodes that are gone",
			about: about{
				shows:  "Nodes that are gone and still hold their blocks: until their routes are gone, and for half a minute.",
				normal: "0, or the nodes that have just left.",
				do:     "For long: their routes are not deleted. See *Held by the brake* and *Changes of routes*.",
				page:   routes + "#node-ipam",
			},
			unit:  units.Short,
			lines: []line{{highest("", of("ccm_ipam_nodes_held")), ""}},
			base:  green,
			none:  off,
			high:  8,
		}.panel(),
		graph{
			title: "Blocks given and freed",
			about: about{
				shows:  "Blocks that became taken, and that became free again, in five minutes, by cluster CIDR.",
				normal: "One given for each node that joins, one freed for each that leaves, after its route is gone.",
				do:     "Given without new nodes: look for nodes that register again and again.",
				page:   routes + "#node-ipam",
			},
			unit: units.Short,
			lines: []line{
				{times("clusterCIDR", "[5m]", of("node_ipam_controller_cidrset_cidrs_allocations_total")), "{{clusterCIDR}}: given"},
				{times("clusterCIDR", "[5m]", of("node_ipam_controller_cidrset_cidrs_releases_total")), "{{clusterCIDR}}: freed"},
			},
		}.panel(),
		graph{
			title: "Time from registration to a pod CIDR",
			about: about{
				shows:  "Time from the creation of a node to its pod CIDR: median and 99th percentile in ten minutes.",
				normal: "Below a second. With CloudAllocator also what the cloud needs to answer.",
				do:     "Seconds: see *Queue*, and *Rate limits* for the API server.",
				page:   routes + "#node-ipam",
			},
			unit: units.Seconds,
			lines: []line{
				{quantile(0.5, long, "", of("ccm_ipam_time_to_pod_cidrs_seconds_bucket")), "median"},
				{quantile(0.99, long, "", of("ccm_ipam_time_to_pod_cidrs_seconds_bucket")), "99 %"},
			},
		}.panel(),
		graph{
			title: "Writes of pod CIDRs",
			about: about{
				shows:  "Writes of pod CIDRs to nodes in five minutes, by result at the API server.",
				normal: "One for each new node, `ok`; some `conflict` while kubelets register.",
				do:     "`forbidden`: the ClusterRole lacks patch on nodes. `invalid`: another program was faster, see *Another allocator*. `not_stored`: an admission policy takes them out.",
				page:   routes + "#node-ipam",
			},
			unit:  units.Short,
			lines: []line{{times("result", "[5m]", of("ccm_ipam_writes_total")), "{{result}}"}},
		}.panel(),
		graph{
			title: "Use of the cluster CIDRs",
			about: about{
				shows:  "Share of the blocks that is taken, by cluster CIDR, over time.",
				normal: "Follows the number of nodes.",
				do:     "Growing without nodes: blocks of nodes that are gone wait for their routes. See *Held by the brake* and *Changes of routes*.",
				alert:  "RouteCCMCIDRsNearlyExhausted",
				page:   "how-to/routes.md#extend-a-range",
			},
			unit:  units.PercentUnit,
			lines: []line{{highest("clusterCIDR", of("node_ipam_controller_cidrset_usage_cidrs")), "{{clusterCIDR}}"}},
			bad:   []step{{0.9, yellow}, {1, red}},
			max:   1,
		}.panel(),
	}}
}
