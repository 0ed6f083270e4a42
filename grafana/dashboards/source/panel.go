package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// about is a panel's description for the person on call: the values shown, the normal
// values, and the action otherwise. `page` is the page of docs/ with details, `alert` the
// rule on the same metric, whose runbook is linked.
type about struct {
	shows, normal, do string
	page, alert       string
}

func (a about) text() string {
	return a.shows + "\n\n**Normal:** " + a.normal + "\n\n**Otherwise:** " + a.do
}

// line is one query and the name of its line.
type line struct{ expression, legend string }

// panel is one panel of a row.
type panel = cog.Builder[dashboard.Panel]

// step is a threshold: from this value on, this colour.
type step struct {
	from   float64
	colour string
}

const (
	green  = "green"
	yellow = "yellow"
	red    = "red"
	blue   = "blue"
	grey   = "text"
)

var source = common.DataSourceRef{
	Type: cog.ToPtr("prometheus"),
	Uid:  cog.ToPtr("${datasource}"),
}

// thresholds uses the colour `base` below the first step.
func thresholds(base string, steps []step) *dashboard.ThresholdsConfigBuilder {
	all := []dashboard.Threshold{{Color: base}}
	for _, each := range steps {
		all = append(all, dashboard.Threshold{Value: cog.ToPtr(each.from), Color: each.colour})
	}
	return dashboard.NewThresholdsConfigBuilder().
		Mode(dashboard.ThresholdsModeAbsolute).
		Steps(all)
}

func targets(lines []line, instant bool) []cog.Builder[variants.Dataquery] {
	var built []cog.Builder[variants.Dataquery]
	for number, each := range lines {
		query := prometheus.NewDataqueryBuilder().
			RefId(string(rune('A' + number))).
			Datasource(source).
			EditorMode(prometheus.QueryEditorModeCode).
			Expr(each.expression).
			LegendFormat(each.legend)
		if instant {
			query.Instant()
		} else {
			query.Range()
		}
		built = append(built, query)
	}
	return built
}

// graph draws lines over time.
type graph struct {
	title string
	about about
	unit  string
	lines []line
	// bad draws a line at each of these values.
	bad []step
	// stacked fills the areas on top of each other. Use it only if the sum means something.
	stacked bool
	// log is for times between milliseconds and minutes.
	log  bool
	max  float64
	wide uint32
}

func (g graph) panel() panel {
	built := timeseries.NewPanelBuilder().
		Title(g.title).
		Description(g.about.text()).
		Links(g.about.links()).
		Datasource(source).
		Targets(targets(g.lines, false)).
		Unit(g.unit).
		Min(0).
		Height(8).
		Span(size(g.wide, 8)).
		NoValue("none so far").
		LineWidth(1).
		FillOpacity(8).
		ShowPoints(common.VisibilityModeAuto).
		Tooltip(common.NewVizTooltipOptionsBuilder().
			Mode(common.TooltipDisplayModeMulti).
			Sort(common.SortOrderDescending)).
		Legend(common.NewVizLegendOptionsBuilder().
			DisplayMode(common.LegendDisplayModeList).
			Placement(common.LegendPlacementBottom).
			ShowLegend(true))
	if g.max > 0 {
		built.Max(g.max)
	}
	if g.stacked {
		built.FillOpacity(30).
			Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
	}
	if g.log {
		built.Min(0.001).ScaleDistribution(common.NewScaleDistributionConfigBuilder().
			Type(common.ScaleDistributionLog).
			Log(10))
	}
	if len(g.bad) > 0 {
		built.Thresholds(thresholds("transparent", g.bad)).
			ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().
				Mode(common.GraphThresholdsStyleModeDashed))
	}
	return built
}

// number is one current figure, in a colour that shows whether it is good.
type number struct {
	title string
	about about
	unit  string
	lines []line
	base  string
	steps []step
	// words in place of values.
	words map[string]word
	// names shows the series' names instead of their values.
	names bool
	none  string
	wide  uint32
	high  uint32
}

// word is shown instead of a value.
type word struct{ text, colour string }

func (n number) panel() panel {
	built := stat.NewPanelBuilder().
		Title(n.title).
		Description(n.about.text()).
		Links(n.about.links()).
		Datasource(source).
		Targets(targets(n.lines, true)).
		Unit(n.unit).
		Height(size(n.high, 4)).
		Span(size(n.wide, 4)).
		NoValue(n.none).
		GraphMode(common.BigValueGraphModeNone).
		ColorMode(common.BigValueColorModeBackground).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		Thresholds(thresholds(n.base, n.steps)).
		Mappings(mappings(n.words))
	if n.names {
		built.TextMode(common.BigValueTextModeName)
	}
	return built
}

// strip shows states over time, one line for each series.
type strip struct {
	title string
	about about
	lines []line
	words map[string]word
	wide  uint32
	high  uint32
}

func (s strip) panel() panel {
	return statetimeline.NewPanelBuilder().
		Title(s.title).
		Description(s.about.text()).
		Links(s.about.links()).
		Datasource(source).
		Targets(targets(s.lines, false)).
		Unit(units.Short).
		Height(size(s.high, 8)).
		Span(size(s.wide, 8)).
		NoValue("no replica is seen").
		FillOpacity(80).
		LineWidth(0).
		RowHeight(0.8).
		ShowValue(common.VisibilityModeNever).
		Mappings(mappings(s.words)).
		Thresholds(thresholds(grey, nil))
}

// list shows series by their labels, one row each.
type list struct {
	title   string
	about   about
	lines   []line
	hidden  []string
	renamed map[string]string
	// dates are columns with points in time, in milliseconds.
	dates []string
	wide  uint32
}

func (l list) panel() panel {
	queries := targets(l.lines, true)
	for _, each := range queries {
		if query, ok := each.(*prometheus.DataqueryBuilder); ok {
			query.Format(prometheus.PromQueryFormatTable)
		}
	}
	hidden := map[string]bool{"Time": true}
	for _, label := range l.hidden {
		hidden[label] = true
	}
	built := table.NewPanelBuilder().
		Title(l.title).
		Description(l.about.text()).
		Links(l.about.links()).
		Datasource(source).
		Targets(queries).
		Height(8).
		Span(size(l.wide, 16)).
		NoValue("no replica is seen").
		WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
		WithTransformation(dashboard.DataTransformerConfig{
			Id: "organize",
			Options: map[string]any{
				"excludeByName": hidden,
				"indexByName":   map[string]any{},
				"renameByName":  l.renamed,
			},
		})
	for _, column := range l.dates {
		built.OverrideByName(column, []dashboard.DynamicConfigValue{{Id: "unit", Value: "dateTimeFromNow"}})
	}
	return built
}

func mappings(words map[string]word) []dashboard.ValueMapping {
	if len(words) == 0 {
		return nil
	}
	results := map[string]dashboard.ValueMappingResult{}
	for value, each := range words {
		results[value] = dashboard.ValueMappingResult{
			Text:  cog.ToPtr(each.text),
			Color: cog.ToPtr(each.colour),
		}
	}
	return []dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{
		Type:    dashboard.MappingTypeValueToText,
		Options: results,
	}}}
}

func size(chosen, otherwise uint32) uint32 {
	if chosen == 0 {
		return otherwise
	}
	return chosen
}
