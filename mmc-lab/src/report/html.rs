//! One design for every report: a self-contained page without script or network, light and dark, for a phone, a keyboard
//! and a screen reader.
//!
//! All text given to a [`Page`] is plain and gets escaped here: names of tasks come out of traces, and may be anything.

use super::chart::Picture;
use std::fmt::Write;

/// The colours, for pages and for pictures that are files of their own. Those of the classes keep apart for every kind of
/// colour blindness; lines are told apart by their dashes as well.
pub const COLOURS: &str = "\
:root{--ink:#1f2328;--soft:#59636e;--line:#d1d9e0;--paper:#ffffff;--card:#f6f8fa;--bad:#b3300a;--focus:#0b57c2;\
--async:#8b949e;--sync:#0a3f94;--journal:#c93a08;--read:#2f9bdc;\
--p0:#c93a08;--p1:#0a3f94;--p2:#1b74ac;--p3:#8e3bb0;--p4:#5b6770;--p5:#7a6400}\
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9da7b1;--line:#3d444d;--paper:#0d1117;--card:#161b22;\
--bad:#ff8a5c;--focus:#6cb2ff;--async:#727b86;--sync:#3d84f0;--journal:#ff7b4a;--read:#8fd0ff;\
--p0:#ff7b4a;--p1:#4c92ff;--p2:#8fd0ff;--p3:#c88cf0;--p4:#9da7b1;--p5:#e0c05a}}\
svg text{fill:var(--ink);font:13px system-ui,sans-serif}svg .soft{fill:var(--soft)}svg .end{text-anchor:end}\
svg .mid{text-anchor:middle}svg .strong{font-weight:600}svg .small{font-size:11px}\
svg .async{fill:var(--async)}svg .sync{fill:var(--sync)}svg .journal{fill:var(--journal)}svg .read{fill:var(--read)}\
svg .grid{stroke:var(--line);stroke-width:1;fill:none}svg .axis{stroke:var(--soft);stroke-width:1;fill:none}\
svg .depth{fill:var(--async);opacity:.35}svg .halo{paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}\
svg .tags{fill:var(--read)}svg .queue{fill:var(--journal)}svg .card{fill:var(--async)}";

const STYLE: &str = "*{box-sizing:border-box}html{color-scheme:light dark}\
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,sans-serif}\
header,main,nav,footer{max-width:60rem;margin:0 auto;padding:0 1rem}header{padding-top:1.5rem}\
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:var(--paper);padding:.3rem .6rem}\
h1{font-size:1.6rem;line-height:1.25;margin:.2rem 0 .6rem;overflow-wrap:anywhere}\
h2{font-size:1.2rem;line-height:1.3;margin:2.4rem 0 .6rem;padding-top:.9rem;border-top:1px solid var(--line);overflow-wrap:anywhere}\
h3{font-size:1rem;margin:1.4rem 0 .4rem;overflow-wrap:anywhere}p,li{max-width:46rem;overflow-wrap:anywhere}\
.kind{color:var(--soft);font-size:.85rem;margin:0;overflow-wrap:anywhere}.soft{color:var(--soft)}.bad{color:var(--bad);font-weight:600}\
a{color:var(--focus)}:focus-visible{outline:3px solid var(--focus);outline-offset:2px}\
nav ol{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;margin:0;padding:.6rem 0;font-size:.9rem}\
.keys{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.6rem;margin:1rem 0}\
.keys div{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.5rem .8rem;min-width:0}\
.keys dt{color:var(--soft);font-size:.82rem;line-height:1.3}\
.keys dd{margin:.1rem 0 0;font-size:1.35rem;font-weight:600;line-height:1.3;overflow-wrap:anywhere}\
.keys dd small{display:block;font-size:.8rem;font-weight:400;color:var(--soft)}\
.scroll{overflow-x:auto;margin:.6rem 0}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem}\
caption{text-align:left;color:var(--soft);padding:.2rem 0 .4rem;font-size:.85rem}\
th,td{padding:.28rem .7rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}\
thead th{vertical-align:bottom;white-space:normal;min-width:4.5rem;border-bottom-color:var(--soft)}\
th[scope=row]{text-align:left;font-weight:400;max-width:24rem;white-space:normal;min-width:13rem;overflow-wrap:anywhere;\
position:sticky;left:0;background:var(--paper)}\
td.text{text-align:left;white-space:normal;min-width:14rem}\
thead th:first-child,thead th.text{text-align:left}tr.mark>*,tr.mark th[scope=row]{background:var(--card);font-weight:600}\
figure{margin:1.2rem 0}figcaption{max-width:46rem;margin-bottom:.5rem}figcaption strong{display:block}figcaption span{color:var(--soft);font-size:.9rem}\
svg{display:block;width:100%;height:auto}svg.narrow{display:none}details{margin:.4rem 0}summary{cursor:pointer;color:var(--soft);font-size:.9rem}\
pre{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.7rem;font-size:.85rem;margin:.5rem 0}\
code{overflow-wrap:anywhere}footer{color:var(--soft);font-size:.85rem;padding-top:2rem;padding-bottom:2rem}\
@media(max-width:44rem){svg.wide{display:none}svg.narrow{display:block}h1{font-size:1.35rem}\
.keys{grid-template-columns:repeat(auto-fit,minmax(8rem,1fr))}th,td{padding:.28rem .45rem}th[scope=row]{max-width:11rem;min-width:8.5rem}}\
@media print{details>*{display:block}nav{display:none}}";

/// Text as it may stand in an element or an attribute: what means something in HTML is replaced, and so is what no page may
/// hold or what would turn the line around (control characters, marks of direction).
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                out.push('\u{fffd}');
            }
            c => out.push(c),
        }
    }
    out
}

/// A text of at most `most` characters: of a longer one the beginning, and `…`.
#[must_use]
pub fn clip(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// One cell of a [`Table`].
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    class: &'static str,
}

impl Cell {
    /// Something to be worried about.
    #[must_use]
    pub fn bad(text: impl Into<String>) -> Self {
        Self { text: text.into(), class: " class=\"bad\"" }
    }
    /// Words, not a number: flush left, and broken into lines.
    #[must_use]
    pub fn words(text: impl Into<String>) -> Self {
        Self { text: text.into(), class: " class=\"text\"" }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), class: "" }
    }
}

/// A table: a caption, a line of column heads, rows with a head each.
#[derive(Clone, Debug)]
pub struct Table {
    caption: String,
    head: Vec<Cell>,
    rows: Vec<(String, bool, Vec<Cell>)>,
}

impl Table {
    /// Without rows yet; the first head is that of the rows' heads.
    #[must_use]
    pub fn new<H: Into<Cell>>(caption: impl Into<String>, head: impl IntoIterator<Item = H>) -> Self {
        Self { caption: caption.into(), head: head.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// One more row.
    pub fn row<C: Into<Cell>>(&mut self, head: impl Into<String>, cells: impl IntoIterator<Item = C>) {
        self.rows.push((head.into(), false, cells.into_iter().map(Into::into).collect()));
    }

    /// The latest row is the one that matters.
    pub fn mark(&mut self) {
        if let Some(row) = self.rows.last_mut() {
            row.1 = true;
        }
    }

    fn html(&self, out: &mut String) {
        // A region that scrolls must be reachable by keyboard, and have a name.
        let caption = escape(&self.caption);
        let _ = write!(
            out,
            "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Table: {caption}\"><table><caption>{caption}</caption><thead><tr>"
        );
        for head in &self.head {
            let _ = write!(out, "<th scope=\"col\"{}>{}</th>", head.class, escape(&head.text));
        }
        out.push_str("</tr></thead><tbody>\n");
        for (head, mark, cells) in &self.rows {
            let mark = if *mark { " class=\"mark\"" } else { "" };
            let _ = write!(out, "<tr{mark}><th scope=\"row\">{}</th>", escape(head));
            for cell in cells {
                let _ = write!(out, "<td{}>{}</td>", cell.class, escape(&cell.text));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
    }
}

/// A figure that is to be seen first.
#[derive(Clone, Debug)]
pub struct Key {
    /// What it is.
    pub label: String,
    /// Number and unit.
    pub value: String,
    /// A few words more, or nothing.
    pub note: String,
    /// Something to be worried about.
    pub bad: bool,
}

impl Key {
    /// Nothing to be worried about.
    #[must_use]
    pub fn new(label: impl Into<String>, value: impl Into<String>, note: impl Into<String>) -> Self {
        Self { label: label.into(), value: value.into(), note: note.into(), bad: false }
    }
}

/// A page being written.
#[derive(Clone, Debug)]
pub struct Page {
    command: &'static str,
    title: String,
    header: String,
    body: String,
    contents: Vec<String>,
    pictures: usize,
}

impl Page {
    /// Of `mmc-lab command`: `title` is for the tab, `finding` the heading, `about` what was looked at.
    #[must_use]
    pub fn new(command: &'static str, title: &str, finding: &str, about: &str) -> Self {
        let header = format!(
            "<p class=\"kind\">{}</p>\n<h1>{}</h1>\n<p class=\"soft\">{}</p>\n",
            escape(title),
            escape(finding),
            escape(about)
        );
        let (body, contents) = (String::new(), Vec::new());
        Self { command, title: title.to_owned(), header, body, contents, pictures: 0 }
    }

    /// The figures to be seen first.
    pub fn keys(&mut self, keys: &[Key]) {
        self.body.push_str("<dl class=\"keys\">\n");
        for key in keys {
            let note = if key.note.is_empty() {
                String::new()
            } else {
                format!("<small>{}</small>", escape(&key.note))
            };
            let _ = writeln!(
                self.body,
                "<div><dt>{}</dt><dd{}>{}{note}</dd></div>",
                escape(&key.label),
                if key.bad { " class=\"bad\"" } else { "" },
                escape(&key.value)
            );
        }
        self.body.push_str("</dl>\n");
    }

    /// A new section, in the list of contents, too.
    pub fn section(&mut self, heading: &str) {
        let end = if self.contents.is_empty() { "" } else { "</section>\n" };
        self.contents.push(heading.to_owned());
        let n = self.contents.len();
        let _ = writeln!(
            self.body,
            "{end}<section aria-labelledby=\"s{n}\"><h2 id=\"s{n}\">{}</h2>",
            escape(heading)
        );
    }

    /// A heading within a section.
    pub fn heading(&mut self, heading: &str) {
        let _ = writeln!(self.body, "<h3>{}</h3>", escape(heading));
    }

    /// A paragraph.
    pub fn text(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escape(text));
    }

    /// A paragraph that may be passed over.
    pub fn aside(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p class=\"soft\">{}</p>", escape(text));
    }

    /// Lines to be typed, or rows of data; under `summary`, closed, if there is one.
    pub fn lines(&mut self, label: &str, lines: &str, closed: bool) {
        let pre = format!(
            "<pre tabindex=\"0\" role=\"region\" aria-label=\"{}\"><code>{}</code></pre>\n",
            escape(label),
            escape(lines.trim())
        );
        let _ = match closed {
            true => writeln!(self.body, "<details><summary>{}</summary>{pre}</details>", escape(label)),
            false => write!(self.body, "{pre}"),
        };
    }

    /// A list; what goes beyond `shown` is under a summary.
    pub fn list(&mut self, items: &[String], shown: usize) {
        let list = |out: &mut String, items: &[String]| {
            out.push_str("<ul>\n");
            for item in items {
                let _ = writeln!(out, "<li>{}</li>", escape(item));
            }
            out.push_str("</ul>\n");
        };
        let (first, more) = items.split_at(shown.min(items.len()));
        if !first.is_empty() {
            list(&mut self.body, first);
        }
        if !more.is_empty() {
            let _ = write!(self.body, "<details><summary>{} more</summary>", more.len());
            list(&mut self.body, more);
            self.body.push_str("</details>\n");
        }
    }

    /// A table.
    pub fn table(&mut self, table: &Table) {
        table.html(&mut self.body);
    }

    /// A table under a summary, closed.
    pub fn folded(&mut self, summary: &str, table: &Table) {
        let _ = write!(self.body, "<details><summary>{}</summary>", escape(summary));
        table.html(&mut self.body);
        self.body.push_str("</details>\n");
    }

    /// A picture with the numbers behind it.
    pub fn picture(&mut self, picture: &Picture, numbers: &Table) {
        self.figure(picture, Some(numbers));
    }

    /// A picture whose numbers are in a table beside it.
    pub fn drawing(&mut self, picture: &Picture) {
        self.figure(picture, None);
    }

    fn figure(&mut self, picture: &Picture, numbers: Option<&Table>) {
        self.pictures += 1;
        let n = self.pictures;
        let _ = writeln!(
            self.body,
            "<figure><figcaption><strong>{}</strong><span>{}</span></figcaption>{}{}",
            escape(&picture.title),
            escape(&picture.text),
            picture.svg(true, &format!("f{n}w")),
            picture.svg(false, &format!("f{n}n")),
        );
        if let Some(numbers) = numbers {
            self.folded(&format!("Numbers: {}", picture.title), numbers);
        }
        self.body.push_str("</figure>\n");
    }

    /// The page.
    #[must_use]
    pub fn finish(mut self) -> String {
        if !self.contents.is_empty() {
            self.body.push_str("</section>\n");
        }
        let mut nav = String::new();
        for (i, heading) in self.contents.iter().enumerate() {
            let _ = write!(nav, "<li><a href=\"#s{}\">{}</a></li>", i + 1, escape(heading));
        }
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{}</title>\
             <link rel=\"icon\" href=\"data:,\"><style>{COLOURS}{STYLE}</style></head>\n\
             <body><a class=\"skip\" href=\"#main\">To the report</a>\n<header>{}</header>\n\
             <nav aria-label=\"Contents\"><ol>{nav}</ol></nav>\n<main id=\"main\">\n{}</main>\n\
             <footer>Written by mmc-lab {} {}. This page needs no network and runs no script.</footer>\n</body></html>\n",
            escape(&self.title),
            self.header,
            self.body,
            env!("CARGO_PKG_VERSION"),
            self.command,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_gets_out_of_its_place() {
        let name = "</td><script>alert('1')</script>&\"\u{1b}[31m\u{202e}\0";
        let mut page = Page::new("explain", name, name, name);
        page.section(name);
        page.keys(&[Key::new(name, name, name)]);
        page.list(&[name.to_owned(), name.to_owned()], 1);
        page.lines(name, name, true);
        let mut table = Table::new(name, [name]);
        table.row(name, [name]);
        page.table(&table);
        let html = page.finish();
        assert!(!html.contains("<script") && !html.contains("alert('"), "{html}");
        assert!(!html.contains(['\u{1b}', '\0', '\u{202e}']));
        assert_eq!(html.matches("&lt;script&gt;").count(), 19);
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        assert_eq!(clip("jbd2/mmcblk0p1-8", 8), "jbd2/mm…");
        assert_eq!(clip("ééé", 3), "ééé");
        assert_eq!(clip("", 0), "");
    }
}
