package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// board is one dashboard. Its UID is `quartet-` and its name, so that links between
// dashboards need no table.
type board struct {
	name, title, description string
	// program is the program that the dashboard is about, or empty for all of them.
	program string
	rows    []row
}

// row is a heading and the panels below it.
type row struct {
	title     string
	collapsed bool
	panels    []panel
}

// boards are all dashboards. A controller adds its own from its own file.
var boards []board

const (
	tag = "quartet"
	// Leadership changes last for one point of this distance.
	minute = "1m"
)

// links to the page with details. `docs` is a variable of every dashboard.
func (a about) links() []cog.Builder[dashboard.DashboardLink] {
	var links []cog.Builder[dashboard.DashboardLink]
	if a.alert != "" {
		links = append(links, page("Runbook "+a.alert, "how-to/runbooks/"+a.alert+".md"))
	}
	if a.page != "" {
		links = append(links, page("docs/"+a.page, a.page))
	}
	return links
}

func page(title, path string) *dashboard.DashboardLinkBuilder {
	return dashboard.NewDashboardLinkBuilder(title).
		Type(dashboard.DashboardLinkTypeLink).
		Url("${docs}/" + path).
		Icon("doc").
		TargetBlank(true)
}

// build makes the dashboard in Grafana's format.
func (b board) build(docs string) (dashboard.Dashboard, error) {
	builder := dashboard.NewDashboardBuilder(b.title).
		Uid("quartet-"+b.name).
		Description(b.description).
		Tags([]string{tag, "kubernetes"}).
		Timezone("browser").
		Time("now-1h", "now").
		Refresh("30s").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Editable().
		Variables(b.variables(docs)).
		Annotation(b.leaders()).
		Link(dashboard.NewDashboardLinkBuilder("Quartet").
			Type(dashboard.DashboardLinkTypeDashboards).
			Tags([]string{tag}).
			IncludeVars(true).
			KeepTime(true)).
		Link(page("Runbooks", "how-to/runbooks/README.md"))
	for _, each := range b.rows {
		each.addTo(builder)
	}
	built, err := builder.Build()
	if err != nil {
		return built, fmt.Errorf("%s: %w", b.name, err)
	}
	finish(&built)
	return built, nil
}

func (r row) addTo(builder *dashboard.DashboardBuilder) {
	heading := dashboard.NewRowBuilder(r.title).Collapsed(r.collapsed)
	if !r.collapsed {
		builder.WithRow(heading)
		for _, each := range r.panels {
			builder.WithPanel(each)
		}
		return
	}
	for _, each := range r.panels {
		heading.WithPanel(each)
	}
	builder.WithRow(heading)
}

// finish numbers the panels, and removes placements of links and annotations that not
// every release of Grafana supports.
func finish(built *dashboard.Dashboard) {
	next := uint32(0)
	number := func(id **uint32) {
		next++
		*id = cog.ToPtr(next)
	}
	for _, each := range built.Panels {
		if each.RowPanel != nil {
			next++
			each.RowPanel.Id = next
			for at := range each.RowPanel.Panels {
				number(&each.RowPanel.Panels[at].Id)
			}
		}
		if each.Panel != nil {
			number(&each.Panel.Id)
			plain(each.Panel.Links)
		}
	}
	plain(built.Links)
	for at := range built.Annotations.List {
		built.Annotations.List[at].Placement = nil
	}
}

func plain(links []dashboard.DashboardLink) {
	for at := range links {
		links[at].Placement = nil
	}
}

// leaders marks the moments when a replica begins to lead.
func (b board) leaders() *dashboard.AnnotationQueryBuilder {
	leads := b.scoped("leader_election_master_status") + " == 1"
	before := b.scoped("leader_election_master_status") + " offset " + minute + " == 1"
	expression := fmt.Sprintf("(%s) unless (%s)", leads, before)
	return dashboard.NewAnnotationQueryBuilder().
		Name("Leader changes").
		Datasource(source).
		Enable(true).
		IconColor(blue).
		Expr(expression).
		Target(prometheus.NewDataqueryBuilder().
			RefId("Anno").
			Datasource(source).
			Expr(expression).
			Interval(minute).
			LegendFormat("{{instance}} leads {{name}}"))
}

// scoped is a metric of the processes that this dashboard is about.
func (b board) scoped(metric string, matchers ...string) string {
	if b.program == "" {
		return anywhere(metric, matchers...)
	}
	return of(metric, matchers...)
}

func (b board) variables(docs string) []cog.Builder[dashboard.VariableModel] {
	found := []cog.Builder[dashboard.VariableModel]{
		dashboard.NewDatasourceVariableBuilder("datasource").
			Label("Data source").
			Type("prometheus"),
		choice("cluster", "Cluster", `label_values(ccm_build_info, cluster)`).AllValue(".*"),
		choice("namespace", "Namespace",
			`label_values(ccm_build_info{cluster=~"$cluster"}, namespace)`).AllValue(".*"),
	}
	if b.program != "" {
		// "All" does not have its own value: it expands to the listed values, the
		// processes of this program, whatever their job is called.
		mine := fmt.Sprintf(`ccm_build_info{%s,program=%q}`, somewhere, b.program)
		its := fmt.Sprintf(`ccm_build_info{%s,program=%q,job=~"$job"}`, somewhere, b.program)
		found = append(found,
			choice("job", "Job", fmt.Sprintf(`label_values(%s, job)`, mine)),
			choice("instance", "Instance", fmt.Sprintf(`label_values(%s, instance)`, its)))
	}
	return append(found, dashboard.NewConstantVariableBuilder("docs").
		Label("Where docs/ is published").
		Value(dashboard.StringOrMap{String: cog.ToPtr(docs)}))
}

// choice is a variable whose values are reloaded when the time range changes, so that
// replicas that have ended can still be selected.
func choice(name, label, query string) *dashboard.QueryVariableBuilder {
	everything := dashboard.VariableOption{
		Selected: cog.ToPtr(true),
		Text:     dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
		Value:    dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
	}
	return dashboard.NewQueryVariableBuilder(name).
		Label(label).
		Datasource(source).
		Definition(query).
		Query(dashboard.StringOrMap{Map: map[string]any{
			"query": query, "refId": "variable-" + name, "qryType": 5,
		}}).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc).
		Multi(true).
		IncludeAll(true).
		Current(everything)
}
