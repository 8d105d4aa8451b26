package invoices

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
)

// Rows is how many rows Generate writes, the header aside.
const Rows = 30_000

// Header is the first line of the file.
const Header = "invoice_id,customer_id,customer,country,issued,due,paid,currency,net,vat_rate,gross"

// seed makes the file what it is.
const seed = 20250131

// Generate writes the data file, uncompressed: the same bytes each time, on every machine and with every version of Go.
//
// About one row in twenty is dirty in a way that real exports are: exact copies, corrected versions under the same invoice id, invoices
// typed twice under two ids, dates and amounts in another notation, names in another spelling, empty fields.
func Generate(w io.Writer) error {
	out := bufio.NewWriter(w)
	g := generator{rng: splitmix{state: seed}}
	g.customers()
	lines := make([]string, 0, Rows)
	var rows []row
	for len(lines) < Rows {
		p := g.rng.below(1000)
		var r row
		switch {
		case len(rows) < 100 || p >= 25:
			r = g.fresh(len(rows))
		default:
			// Repetitions follow the original after a while, as when two exports were joined.
			old := rows[len(rows)-1-g.rng.below(80)]
			switch {
			case p < 12: // an exact copy
				lines = append(lines, old.line)
				continue
			case p < 20: // corrected, under the same id
				r = old
				r.net += int64(1+g.rng.below(50)) * 100
			default: // typed twice, under two ids
				r = old
				r.id = len(rows)
				r.issued = r.issued.AddDate(0, 0, g.rng.below(3))
			}
		}
		r.line = g.write(r)
		rows = append(rows, r)
		lines = append(lines, r.line)
	}
	fmt.Fprintln(out, Header)
	for _, l := range lines {
		fmt.Fprintln(out, l)
	}
	return out.Flush()
}

// row is one invoice. Amounts are in cents.
type row struct {
	id       int
	customer int
	issued   time.Time
	terms    int // days until it is due
	paid     int // days after issue; < 0: not yet
	net      int64
	vat      int64 // percent
	line     string
}

type customer struct{ name, country string }

type generator struct {
	rng  splitmix
	list []customer
}

const customerCount = 400

// customers makes up the customers; names are put together from common words and belong to nobody.
func (g *generator) customers() {
	first := []string{"Amber", "Birch", "Cobalt", "Delta", "Ember", "Fjord", "Granite", "Harbor", "Indigo", "Juniper", "Kestrel", "Linden", "Maple", "North", "Onyx", "Pine", "Quartz", "River", "Slate", "Tidal"}
	second := []string{"Bakery", "Bikes", "Books", "Clinic", "Foods", "Freight", "Garden", "Hotel", "Labs", "Marine", "Optics", "Paper", "Print", "School", "Solar", "Studio", "Textiles", "Tools", "Travel", "Works"}
	countries := []string{"AT", "BE", "DE", "DK", "ES", "FI", "FR", "IE", "IT", "NL", "PT", "SE"}
	for i := range customerCount {
		g.list = append(g.list, customer{
			name:    first[i%len(first)] + " " + second[i/len(first)%len(second)],
			country: countries[g.rng.below(len(countries))],
		})
	}
}

func (g *generator) fresh(id int) row {
	// A few customers get most of the invoices.
	c := min(g.rng.below(customerCount), g.rng.below(customerCount))
	r := row{
		id: id, customer: c, terms: []int{14, 30, 30, 30, 60}[g.rng.below(5)], vat: []int64{0, 7, 19, 20, 21, 21}[g.rng.below(6)],
		issued: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, id*365/Rows), paid: -1,
	}
	r.net = int64(500+g.rng.below(20_000)) * int64(1+g.rng.below(40))
	if g.rng.below(100) == 0 {
		r.net = -r.net // a credit note
	}
	if g.rng.below(100) < 82 {
		r.paid = 3 + g.rng.below(75)
	}
	return r
}

// write is the row's line, now and then in a notation that does not belong there.
func (g *generator) write(r row) string {
	c := g.list[r.customer]
	gross := r.net + (r.net*r.vat+50)/100
	name, currency, due, paid, total := c.name, "EUR", g.date(r.issued.AddDate(0, 0, r.terms)), "", g.amount(gross)
	if r.paid >= 0 {
		paid = g.date(r.issued.AddDate(0, 0, r.paid))
	}
	switch g.rng.below(200) {
	case 0, 1:
		name = strings.ToUpper(name)
	case 2, 3:
		name = " " + name + "  "
	case 4:
		currency = "eur"
	case 5:
		due = ""
	case 6:
		total = ""
	}
	return fmt.Sprintf("INV-2025-%06d,C%04d,%s,%s,%s,%s,%s,%s,%s,%d,%s",
		r.id+1, r.customer+1, name, c.country, g.date(r.issued), due, paid, currency, g.amount(r.net), r.vat, total)
}

func (g *generator) date(t time.Time) string {
	if g.rng.below(100) == 0 {
		return t.Format("02.01.2006")
	}
	return t.Format("2006-01-02")
}

func (g *generator) amount(cents int64) string {
	sign, n := "", cents
	if n < 0 {
		sign, n = "-", -n
	}
	if g.rng.below(100) == 0 && n >= 100_000 && n < 100_000_000 {
		return fmt.Sprintf("\"%s%d.%03d,%02d\"", sign, n/100_000, n/100%1000, n%100)
	}
	return fmt.Sprintf("%s%d.%02d", sign, n/100, n%100)
}

// splitmix is the generator SplitMix64 of Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014). The standard
// library's generators do not promise the same numbers in every version.
type splitmix struct{ state uint64 }

func (s *splitmix) next() uint64 {
	s.state += 0x9e3779b97f4a7c15
	z := s.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number from 0 to n-1. Its bias is without meaning at this size.
func (s *splitmix) below(n int) int { return int(s.next() % uint64(n)) }
