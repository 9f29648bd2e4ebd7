"""From a folder of runs to findings, tables, figures and a page. Everything but the reading and the
writing is a pure function; nothing here imports a framework. `analysis.pipeline` is the flow."""
