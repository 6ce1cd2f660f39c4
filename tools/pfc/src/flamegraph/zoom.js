// SPDX-License-Identifier: GPL-2.0
// A click makes a function and its callers as wide as the picture. Ctrl-F marks functions whose
// names match, and shows their share of the samples.
(function () {
	const margin = 10, full = 1180, letter = 7;
	const all = Array.from(document.querySelectorAll("g.f")).map(function (g) {
		return {
			g: g, rect: g.querySelector("rect"), text: g.querySelector("text"),
			x: +g.dataset.x, w: +g.dataset.w,
			name: g.querySelector("title").textContent.replace(/ \([0-9]+ samples.*$/, ""),
		};
	});
	function zoom(x, w) {
		for (const f of all) {
			const around = f.x <= x + 1e-6 && f.x + f.w >= x + w - 1e-6;
			const inside = f.x >= x - 1e-6 && f.x + f.w <= x + w + 1e-6;
			f.g.style.display = around || inside ? "" : "none";
			const left = around ? margin : margin + (f.x - x) / w * full;
			const width = around ? full : f.w / w * full;
			const letters = Math.floor((width - 6) / letter);
			f.rect.setAttribute("x", left);
			f.rect.setAttribute("width", Math.max(width, 0));
			f.text.setAttribute("x", left + 3);
			f.text.textContent = f.name.length <= letters ? f.name :
				letters < 3 ? "" : f.name.slice(0, letters - 2) + "..";
		}
	}
	for (const f of all)
		f.g.addEventListener("click", function () { zoom(f.x, f.w); });
	document.addEventListener("keydown", function (event) {
		if (!(event.ctrlKey || event.metaKey) || event.key !== "f")
			return;
		event.preventDefault();
		const words = prompt("functions (regular expression)", "");
		let wanted = null, share = 0, end = -1;
		try {
			wanted = words ? new RegExp(words) : null;
		} catch (error) {
			alert(error.message);
			return;
		}
		const found = all.filter(function (f) {
			const is = wanted !== null && wanted.test(f.name);
			f.g.classList.toggle("found", is);
			return is;
		});
		// If a match was called by another match, its samples are samples of the caller, too,
		// and are counted once.
		found.sort(function (a, b) { return a.x - b.x || b.w - a.w; });
		for (const f of found) {
			if (f.x >= end - 1e-6) {
				share += f.w;
				end = f.x + f.w;
			}
		}
		document.getElementById("about").textContent = wanted === null ?
			"click: zoom; Ctrl-F: find" : (share * 100).toFixed(2) + "% match " + words;
	});
})();
