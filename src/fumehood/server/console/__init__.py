"""The console: pages for people who have no terminal. They see what runs, what was denied, what waits for an answer
and whether the record is true; and they answer.

Owns pages and who may see them. Must not know sandboxes or the gateway: all that a page shows it reads from a
`ConsoleSource`, which is a tenant of a server (`tenant_source`) or the log of one user (`local_source`). Templates are
rendered on the server (`rendering`: everything is escaped and neutralised by default), there is one script of our own
(`static/console.js`), and nothing is inline: the content policy in `app` lets nothing else be.

    request -> app._answer: cookie -> session -> scope -> (a form: origin and token) -> a page's handler -> template
    news    -> app._news: `news.NewsFeed` of the log -> the page's `LiveView` -> fragments, which replace elements by id

**How a page is added**, say `egress`:

1. `pages/egress.py` with `async def show(page: PageRequest) -> Response`, which reads `page.source` (what blocks in
   `await page.blocking(...)`) and returns `await page.page("egress.html", hosts=...)`; `page.query("host")` and
   `page.path("id")` have what was asked. What is not there, or not for the viewer, is `raise NoSuchPageError`: the same
   bytes as for what never was. Before code or output of others is shown: `await page.viewed("run", id, who)`.
2. `MODULE = PageModule((ConsoleRoute("/egress", show, (Scope.AUDIT,), nav="Egress", key="e"),), {})` in it, and a place
   in `pages.modules`, which leaves out for `hood console` what it has not. An action is a route with `method="POST"`:
   its handler reads `page.form`, whose token and origin were checked, and ends with `page.go("/egress")`.
3. `templates/egress.html` extends `layout.html` (`title`, `main`). Forms have
   `<input type="hidden" name="token" value="{{ form_token }}">`. Rows that keys lead to have `data-row` and a link;
   numbers, times and states have classes of `static/console.css`. Filters: `moment`, `clock`, `day`, `size`, `duration`
   (microseconds), `short`, `code`, `lines`.
4. Live? Give the page `view="egress"` and `after=` the last record that it shows, and the module
   `{"egress": (scopes, builder)}`: the builder makes a `LiveView`, whose `fragments(record)` render small
   templates (below `templates/fragments`) with an id for each outermost element.
5. A test in `tests/live/test_console.py` with the browser fixture: what it shows, what it does, that hostile text stays
   text; `PAGES` there lists it for axe-core, for the screenshots and for the phone's width. Routes with an id are found
   by `tests/unit/server/test_console.py`, which compares another tenant's with one that never was: add its ids there.
"""
