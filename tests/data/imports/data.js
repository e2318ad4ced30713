window.BENCHMARK_DATA = {
 "lastUpdate": 1774933028658,
 "entries": {
  "Go Benchmark": [
   {
    "commit": {
     "author": {
      "email": "user45e8e8@example.invalid",
      "name": "user45e8e8",
      "username": "user45e8e8"
     },
     "committer": {
      "email": "usere842f3@example.invalid",
      "name": "usere842f3",
      "username": "usere842f3"
     },
     "distinct": true,
     "id": "6dc89aaa69de1820b21d94a8c220c8fbbd912d28",
     "message": "chore(deps-dev): bump braces from 3.0.2 to 3.0.3 (#251)\n\nBumps [braces](https://github.com/micromatch/braces) from 3.0.2 to\n3.0.3.\n<details>\n<summary>Commits</summary>\n<ul>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/74b2db2938fad48a2ea54a9c8bf27a37a62c350d\"><code>74b2db2</code></a>\n3.0.3</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/88f1429a0f47e1dd3813de35211fc97ffda27f9e\"><code>88f1429</code></a>\nupdate eslint. lint, fix unit tests.</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/415d660c3002d1ab7e63dbf490c9851da80596ff\"><code>415d660</code></a>\nSnyk js braces 6838727 (<a\nhref=\"https://redirect.github.com/micromatch/braces/issues/40\">#40</a>)</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/190510f79db1adf21d92798b0bb6fccc1f72c9d6\"><code>190510f</code></a>\nfix tests, skip 1 test in test/braces.expand</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/716eb9f12d820b145a831ad678618731927e8856\"><code>716eb9f</code></a>\nreadme bump</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/a5851e57f45c3431a94d83fc565754bc10f5bbc3\"><code>a5851e5</code></a>\nMerge pull request <a\nhref=\"https://redirect.github.com/micromatch/braces/issues/37\">#37</a>\nfrom coderaiser/fix/vulnerability</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/2092bd1fb108d2c59bd62e243b70ad98db961538\"><code>2092bd1</code></a>\nfeature: braces: add maxSymbols (<a\nhref=\"https://github.com/micromatch/braces/issues/\">https://github.com/micromatch/braces/issues/</a>...</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/9f5b4cf47329351bcb64287223ffb6ecc9a5e6d3\"><code>9f5b4cf</code></a>\nfix: vulnerability (<a\nhref=\"https://security.snyk.io/vuln/SNYK-JS-BRACES-6838727\">https://security.snyk.io/vuln/SNYK-JS-BRACES-6838727</a>)</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/98414f9f1fabe021736e26836d8306d5de747e0d\"><code>98414f9</code></a>\nremove funding file</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/665ab5d561c017a38ba7aafd92cc6655b91d8c14\"><code>665ab5d</code></a>\nupdate keepEscaping doc (<a\nhref=\"https://redirect.github.com/micromatch/braces/issues/27\">#27</a>)</li>\n<li>Additional commits viewable in <a\nhref=\"https://github.com/micromatch/braces/compare/3.0.2...3.0.3\">compare\nview</a></li>\n</ul>\n</details>\n<br />\n\n\n[![Dependabot compatibility\nscore](https://dependabot-badges.githubapp.com/badges/compatibility_score?dependency-name=braces&package-manager=npm_and_yarn&previous-version=3.0.2&new-version=3.0.3)](https://docs.github.com/en/github/managing-security-vulnerabilities/about-dependabot-security-updates#about-compatibility-scores)\n\nDependabot will resolve any conflicts with this PR as long as you don't\nalter it yourself. You can also trigger a rebase manually by commenting\nsomeone@example.invalid rebase`.\n\n[//]: # (dependabot-automerge-start)\n[//]: # (dependabot-automerge-end)\n\n---\n\n<details>\n<summary>Dependabot commands and options</summary>\n<br />\n\nYou can trigger Dependabot actions by commenting on this PR:\n- someone@example.invalid rebase` will rebase this PR\n- someone@example.invalid recreate` will recreate this PR, overwriting any edits\nthat have been made to it\n- someone@example.invalid merge` will merge this PR after your CI passes on it\n- someone@example.invalid squash and merge` will squash and merge this PR after\nyour CI passes on it\n- someone@example.invalid cancel merge` will cancel a previously requested merge\nand block automerging\n- someone@example.invalid reopen` will reopen this PR if it is closed\n- someone@example.invalid close` will close this PR and stop Dependabot recreating\nit. You can achieve the same result by closing it manually\n- someone@example.invalid show <dependency name> ignore conditions` will show all\nof the ignore conditions of the specified dependency\n- someone@example.invalid ignore this major version` will close this PR and stop\nDependabot creating any more for this major version (unless you reopen\nthe PR or upgrade to it yourself)\n- someone@example.invalid ignore this minor version` will close this PR and stop\nDependabot creating any more for this minor version (unless you reopen\nthe PR or upgrade to it yourself)\n- someone@example.invalid ignore this dependency` will close this PR and stop\nDependabot creating any more for this dependency (unless you reopen the\nPR or upgrade to it yourself)\nYou can disable automated security fix PRs for this repo from the\n[Security Alerts\npage](https://github.com/benchmark-action/github-action-benchmark/network/alerts).\n\n</details>\n\nSigned-off-by: dependabot[bot] someone@example.invalid\nCo-authored-by: dependabot[bot] someone@example.invalid",
     "timestamp": "2026-03-26T21:40:58+01:00",
     "tree_id": "1b5ab7687e4f5249236cfdf443a66502a2d4847e",
     "url": "https://github.com/benchmark-action/github-action-benchmark/commit/6dc89aaa69de1820b21d94a8c220c8fbbd912d28"
    },
    "date": 1774557692115,
    "tool": "go",
    "benches": [
     {
      "name": "BenchmarkFib10",
      "value": 317.2,
      "unit": "ns/op",
      "extra": "3774716 times\n4 procs"
     },
     {
      "name": "BenchmarkFib20",
      "value": 39325,
      "unit": "ns/op",
      "extra": "31527 times\n4 procs"
     },
     {
      "name": "BenchmarkFib20WithAuxMetric",
      "value": 39843,
      "unit": "ns/op\t         4.000 auxMetricUnits",
      "extra": "33367 times\n4 procs"
     },
     {
      "name": "BenchmarkFib20WithAuxMetric - ns/op",
      "value": 39843,
      "unit": "ns/op",
      "extra": "33367 times\n4 procs"
     },
     {
      "name": "BenchmarkFib20WithAuxMetric - auxMetricUnits",
      "value": 4,
      "unit": "auxMetricUnits",
      "extra": "33367 times\n4 procs"
     }
    ]
   },
   {
    "commit": {
     "author": {
      "email": "user45e8e8@example.invalid",
      "name": "user45e8e8",
      "username": "user45e8e8"
     },
     "committer": {
      "email": "usere842f3@example.invalid",
      "name": "usere842f3",
      "username": "usere842f3"
     },
     "distinct": true,
     "id": "b0e7057f76614dd5c0355257b2b77ee514f3e77b",
     "message": "chore(deps): bump zipp from 0.6.0 to 3.19.1 in /examples/pytest (#256)\n\nBumps [zipp](https://github.com/jaraco/zipp) from 0.6.0 to 3.19.1.\n<details>\n<summary>Changelog</summary>\n<p><em>Sourced from <a\nhref=\"https://github.com/jaraco/zipp/blob/main/NEWS.rst\">zipp's\nchangelog</a>.</em></p>\n<blockquote>\n<h1>v3.19.1</h1>\n<h2>Bugfixes</h2>\n<ul>\n<li>Improved handling of malformed zip files. (<a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/119\">#119</a>)</li>\n</ul>\n<h1>v3.19.0</h1>\n<h2>Features</h2>\n<ul>\n<li>Implement is_symlink. (<a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/117\">#117</a>)</li>\n</ul>\n<h1>v3.18.2</h1>\n<p>No significant changes.</p>\n<h1>v3.18.1</h1>\n<p>No significant changes.</p>\n<h1>v3.18.0</h1>\n<h2>Features</h2>\n<ul>\n<li>Bypass ZipFile.namelist in glob for better performance. (<a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/106\">#106</a>)</li>\n<li>Refactored glob functionality to support a more generalized solution\nwith support for platform-specific path separators. (<a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/108\">#108</a>)</li>\n</ul>\n<h2>Bugfixes</h2>\n<ul>\n<li>Add special accounting for pypy when computing the stack level for\ntext encoding warnings. (<a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/114\">#114</a>)</li>\n</ul>\n<h1>v3.17.0</h1>\n<p>Features</p>\n<!-- raw HTML omitted -->\n</blockquote>\n<p>... (truncated)</p>\n</details>\n<details>\n<summary>Commits</summary>\n<ul>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/6d1cb72aa55e0536f35d2af128994b5a61ca4c1a\"><code>6d1cb72</code></a>\nFinalize</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/fd604bd34f0343472521a36da1fbd22e793e14fd\"><code>fd604bd</code></a>\nMerge pull request <a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/120\">#120</a> from\njaraco/bugfix/119-malformed-paths</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/c18417ed2953e181728a7dac07bff88a2190abf7\"><code>c18417e</code></a>\nAdd news fragment.</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/58115d2be968644ce71ce6bcc9b79826c82a1806\"><code>58115d2</code></a>\nEmploy SanitizedNames in CompleteDirs. Fixes broken test.</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/564fcc10cdbfdaecdb33688e149827465931c9e0\"><code>564fcc1</code></a>\nAdd SanitizedNames mixin.</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/79a309fe54dc6b7934fb72e9f31bcb58f2e9f547\"><code>79a309f</code></a>\nAdd some assertions about malformed paths.</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/2d015c22348fab46ca765339f55f84fe9d6e8115\"><code>2d015c2</code></a>\nMerge <a\nhref=\"https://github.com/jaraco/skeleton\">https://github.com/jaraco/skeleton</a></li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/a595a0fad054cd20b69d3e954c99174e3a548938\"><code>a595a0f</code></a>\nRename extras to align with core metadata spec.</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/608f90a6e74919501577a1312dc5c7d8e1d391d7\"><code>608f90a</code></a>\nFinalize</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/3a22d724acf874111b43f87f7110225122ec3de5\"><code>3a22d72</code></a>\nMerge pull request <a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/118\">#118</a> from\njaraco/feature/is-symlink</li>\n<li>Additional commits viewable in <a\nhref=\"https://github.com/jaraco/zipp/compare/v0.6.0...v3.19.1\">compare\nview</a></li>\n</ul>\n</details>\n<br />\n\n\n[![Dependabot compatibility\nscore](https://dependabot-badges.githubapp.com/badges/compatibility_score?dependency-name=zipp&package-manager=pip&previous-version=0.6.0&new-version=3.19.1)](https://docs.github.com/en/github/managing-security-vulnerabilities/about-dependabot-security-updates#about-compatibility-scores)\n\nDependabot will resolve any conflicts with this PR as long as you don't\nalter it yourself. You can also trigger a rebase manually by commenting\nsomeone@example.invalid rebase`.\n\n[//]: # (dependabot-automerge-start)\n[//]: # (dependabot-automerge-end)\n\n---\n\n<details>\n<summary>Dependabot commands and options</summary>\n<br />\n\nYou can trigger Dependabot actions by commenting on this PR:\n- someone@example.invalid rebase` will rebase this PR\n- someone@example.invalid recreate` will recreate this PR, overwriting any edits\nthat have been made to it\n- someone@example.invalid merge` will merge this PR after your CI passes on it\n- someone@example.invalid squash and merge` will squash and merge this PR after\nyour CI passes on it\n- someone@example.invalid cancel merge` will cancel a previously requested merge\nand block automerging\n- someone@example.invalid reopen` will reopen this PR if it is closed\n- someone@example.invalid close` will close this PR and stop Dependabot recreating\nit. You can achieve the same result by closing it manually\n- someone@example.invalid show <dependency name> ignore conditions` will show all\nof the ignore conditions of the specified dependency\n- someone@example.invalid ignore this major version` will close this PR and stop\nDependabot creating any more for this major version (unless you reopen\nthe PR or upgrade to it yourself)\n- someone@example.invalid ignore this minor version` will close this PR and stop\nDependabot creating any more for this minor version (unless you reopen\nthe PR or upgrade to it yourself)\n- someone@example.invalid ignore this dependency` will close this PR and stop\nDependabot creating any more for this dependency (unless you reopen the\nPR or upgrade to it yourself)\nYou can disable automated security fix PRs for this repo from the\n[Security Alerts\npage](https://github.com/benchmark-action/github-action-benchmark/network/alerts).\n\n</details>\n\nSigned-off-by: dependabot[bot] someone@example.invalid\nCo-authored-by: dependabot[bot] someone@example.invalid",
     "timestamp": "2026-03-26T21:47:06+01:00",
     "tree_id": "6a27e3e787599abe11fe064453ceaa682e95c153",
     "url": "https://github.com/benchmark-action/github-action-benchmark/commit/b0e7057f76614dd5c0355257b2b77ee514f3e77b"
    },
    "date": 1774558056708,
    "tool": "go",
    "benches": [
     {
      "name": "BenchmarkFib10",
      "value": 312.8,
      "unit": "ns/op",
      "extra": "3888651 times\n4 procs"
     },
     {
      "name": "BenchmarkFib20",
      "value": 39900,
      "unit": "ns/op",
      "extra": "31315 times\n4 procs"
     },
     {
      "name": "BenchmarkFib20WithAuxMetric",
      "value": 41214,
      "unit": "ns/op\t         4.000 auxMetricUnits",
      "extra": "30127 times\n4 procs"
     },
     {
      "name": "BenchmarkFib20WithAuxMetric - ns/op",
      "value": 41214,
      "unit": "ns/op",
      "extra": "30127 times\n4 procs"
     },
     {
      "name": "BenchmarkFib20WithAuxMetric - auxMetricUnits",
      "value": 4,
      "unit": "auxMetricUnits",
      "extra": "30127 times\n4 procs"
     }
    ]
   },
   {
    "commit": {
     "author": {
      "email": "userbc9bb4@example.invalid",
      "name": "userbc9bb4",
      "username": "userbc9bb4"
     },
     "committer": {
      "email": "userbc9bb4@example.invalid",
      "name": "userbc9bb4",
      "username": "userbc9bb4"
     },
     "distinct": true,
     "id": "c38cce98215cf75e178ecd5a0c1a1ab215e93006",
     "message": "release v1.22.0",
     "timestamp": "2026-03-31T06:53:51+02:00",
     "tree_id": "bcd62a1fb1374f67221a37001260ca831840ac40",
     "url": "https://github.com/benchmark-action/github-action-benchmark/commit/c38cce98215cf75e178ecd5a0c1a1ab215e93006"
    },
    "date": 1774932909156,
    "tool": "go",
    "benches": [
     {
      "name": "BenchmarkFib10",
      "value": 313.1,
      "unit": "ns/op",
      "extra": "3852480 times\n4 procs"
     },
     {
      "name": "BenchmarkFib20",
      "value": 39994,
      "unit": "ns/op",
      "extra": "30343 times\n4 procs"
     },
     {
      "name": "BenchmarkFib20WithAuxMetric",
      "value": 40052,
      "unit": "ns/op\t         4.000 auxMetricUnits",
      "extra": "30248 times\n4 procs"
     },
     {
      "name": "BenchmarkFib20WithAuxMetric - ns/op",
      "value": 40052,
      "unit": "ns/op",
      "extra": "30248 times\n4 procs"
     },
     {
      "name": "BenchmarkFib20WithAuxMetric - auxMetricUnits",
      "value": 4,
      "unit": "auxMetricUnits",
      "extra": "30248 times\n4 procs"
     }
    ]
   }
  ],
  "Python Benchmark with pytest-benchmark": [
   {
    "commit": {
     "author": {
      "email": "user45e8e8@example.invalid",
      "name": "user45e8e8",
      "username": "user45e8e8"
     },
     "committer": {
      "email": "usere842f3@example.invalid",
      "name": "usere842f3",
      "username": "usere842f3"
     },
     "distinct": true,
     "id": "6dc89aaa69de1820b21d94a8c220c8fbbd912d28",
     "message": "chore(deps-dev): bump braces from 3.0.2 to 3.0.3 (#251)\n\nBumps [braces](https://github.com/micromatch/braces) from 3.0.2 to\n3.0.3.\n<details>\n<summary>Commits</summary>\n<ul>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/74b2db2938fad48a2ea54a9c8bf27a37a62c350d\"><code>74b2db2</code></a>\n3.0.3</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/88f1429a0f47e1dd3813de35211fc97ffda27f9e\"><code>88f1429</code></a>\nupdate eslint. lint, fix unit tests.</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/415d660c3002d1ab7e63dbf490c9851da80596ff\"><code>415d660</code></a>\nSnyk js braces 6838727 (<a\nhref=\"https://redirect.github.com/micromatch/braces/issues/40\">#40</a>)</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/190510f79db1adf21d92798b0bb6fccc1f72c9d6\"><code>190510f</code></a>\nfix tests, skip 1 test in test/braces.expand</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/716eb9f12d820b145a831ad678618731927e8856\"><code>716eb9f</code></a>\nreadme bump</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/a5851e57f45c3431a94d83fc565754bc10f5bbc3\"><code>a5851e5</code></a>\nMerge pull request <a\nhref=\"https://redirect.github.com/micromatch/braces/issues/37\">#37</a>\nfrom coderaiser/fix/vulnerability</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/2092bd1fb108d2c59bd62e243b70ad98db961538\"><code>2092bd1</code></a>\nfeature: braces: add maxSymbols (<a\nhref=\"https://github.com/micromatch/braces/issues/\">https://github.com/micromatch/braces/issues/</a>...</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/9f5b4cf47329351bcb64287223ffb6ecc9a5e6d3\"><code>9f5b4cf</code></a>\nfix: vulnerability (<a\nhref=\"https://security.snyk.io/vuln/SNYK-JS-BRACES-6838727\">https://security.snyk.io/vuln/SNYK-JS-BRACES-6838727</a>)</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/98414f9f1fabe021736e26836d8306d5de747e0d\"><code>98414f9</code></a>\nremove funding file</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/665ab5d561c017a38ba7aafd92cc6655b91d8c14\"><code>665ab5d</code></a>\nupdate keepEscaping doc (<a\nhref=\"https://redirect.github.com/micromatch/braces/issues/27\">#27</a>)</li>\n<li>Additional commits viewable in <a\nhref=\"https://github.com/micromatch/braces/compare/3.0.2...3.0.3\">compare\nview</a></li>\n</ul>\n</details>\n<br />\n\n\n[![Dependabot compatibility\nscore](https://dependabot-badges.githubapp.com/badges/compatibility_score?dependency-name=braces&package-manager=npm_and_yarn&previous-version=3.0.2&new-version=3.0.3)](https://docs.github.com/en/github/managing-security-vulnerabilities/about-dependabot-security-updates#about-compatibility-scores)\n\nDependabot will resolve any conflicts with this PR as long as you don't\nalter it yourself. You can also trigger a rebase manually by commenting\nsomeone@example.invalid rebase`.\n\n[//]: # (dependabot-automerge-start)\n[//]: # (dependabot-automerge-end)\n\n---\n\n<details>\n<summary>Dependabot commands and options</summary>\n<br />\n\nYou can trigger Dependabot actions by commenting on this PR:\n- someone@example.invalid rebase` will rebase this PR\n- someone@example.invalid recreate` will recreate this PR, overwriting any edits\nthat have been made to it\n- someone@example.invalid merge` will merge this PR after your CI passes on it\n- someone@example.invalid squash and merge` will squash and merge this PR after\nyour CI passes on it\n- someone@example.invalid cancel merge` will cancel a previously requested merge\nand block automerging\n- someone@example.invalid reopen` will reopen this PR if it is closed\n- someone@example.invalid close` will close this PR and stop Dependabot recreating\nit. You can achieve the same result by closing it manually\n- someone@example.invalid show <dependency name> ignore conditions` will show all\nof the ignore conditions of the specified dependency\n- someone@example.invalid ignore this major version` will close this PR and stop\nDependabot creating any more for this major version (unless you reopen\nthe PR or upgrade to it yourself)\n- someone@example.invalid ignore this minor version` will close this PR and stop\nDependabot creating any more for this minor version (unless you reopen\nthe PR or upgrade to it yourself)\n- someone@example.invalid ignore this dependency` will close this PR and stop\nDependabot creating any more for this dependency (unless you reopen the\nPR or upgrade to it yourself)\nYou can disable automated security fix PRs for this repo from the\n[Security Alerts\npage](https://github.com/benchmark-action/github-action-benchmark/network/alerts).\n\n</details>\n\nSigned-off-by: dependabot[bot] someone@example.invalid\nCo-authored-by: dependabot[bot] someone@example.invalid",
     "timestamp": "2026-03-26T21:40:58+01:00",
     "tree_id": "1b5ab7687e4f5249236cfdf443a66502a2d4847e",
     "url": "https://github.com/benchmark-action/github-action-benchmark/commit/6dc89aaa69de1820b21d94a8c220c8fbbd912d28"
    },
    "date": 1774557695444,
    "tool": "pytest",
    "benches": [
     {
      "name": "bench.py::test_fib_10",
      "value": 76934.05941245375,
      "unit": "iter/sec",
      "range": "stddev: 0.000001079766988966525",
      "extra": "mean: 12.998144224248804 usec\nrounds: 36887"
     },
     {
      "name": "bench.py::test_fib_20",
      "value": 622.1651328180358,
      "unit": "iter/sec",
      "range": "stddev: 0.000016111659595892108",
      "extra": "mean: 1.607290327361481 msec\nrounds: 614"
     }
    ]
   },
   {
    "commit": {
     "author": {
      "email": "user45e8e8@example.invalid",
      "name": "user45e8e8",
      "username": "user45e8e8"
     },
     "committer": {
      "email": "usere842f3@example.invalid",
      "name": "usere842f3",
      "username": "usere842f3"
     },
     "distinct": true,
     "id": "b0e7057f76614dd5c0355257b2b77ee514f3e77b",
     "message": "chore(deps): bump zipp from 0.6.0 to 3.19.1 in /examples/pytest (#256)\n\nBumps [zipp](https://github.com/jaraco/zipp) from 0.6.0 to 3.19.1.\n<details>\n<summary>Changelog</summary>\n<p><em>Sourced from <a\nhref=\"https://github.com/jaraco/zipp/blob/main/NEWS.rst\">zipp's\nchangelog</a>.</em></p>\n<blockquote>\n<h1>v3.19.1</h1>\n<h2>Bugfixes</h2>\n<ul>\n<li>Improved handling of malformed zip files. (<a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/119\">#119</a>)</li>\n</ul>\n<h1>v3.19.0</h1>\n<h2>Features</h2>\n<ul>\n<li>Implement is_symlink. (<a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/117\">#117</a>)</li>\n</ul>\n<h1>v3.18.2</h1>\n<p>No significant changes.</p>\n<h1>v3.18.1</h1>\n<p>No significant changes.</p>\n<h1>v3.18.0</h1>\n<h2>Features</h2>\n<ul>\n<li>Bypass ZipFile.namelist in glob for better performance. (<a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/106\">#106</a>)</li>\n<li>Refactored glob functionality to support a more generalized solution\nwith support for platform-specific path separators. (<a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/108\">#108</a>)</li>\n</ul>\n<h2>Bugfixes</h2>\n<ul>\n<li>Add special accounting for pypy when computing the stack level for\ntext encoding warnings. (<a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/114\">#114</a>)</li>\n</ul>\n<h1>v3.17.0</h1>\n<p>Features</p>\n<!-- raw HTML omitted -->\n</blockquote>\n<p>... (truncated)</p>\n</details>\n<details>\n<summary>Commits</summary>\n<ul>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/6d1cb72aa55e0536f35d2af128994b5a61ca4c1a\"><code>6d1cb72</code></a>\nFinalize</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/fd604bd34f0343472521a36da1fbd22e793e14fd\"><code>fd604bd</code></a>\nMerge pull request <a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/120\">#120</a> from\njaraco/bugfix/119-malformed-paths</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/c18417ed2953e181728a7dac07bff88a2190abf7\"><code>c18417e</code></a>\nAdd news fragment.</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/58115d2be968644ce71ce6bcc9b79826c82a1806\"><code>58115d2</code></a>\nEmploy SanitizedNames in CompleteDirs. Fixes broken test.</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/564fcc10cdbfdaecdb33688e149827465931c9e0\"><code>564fcc1</code></a>\nAdd SanitizedNames mixin.</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/79a309fe54dc6b7934fb72e9f31bcb58f2e9f547\"><code>79a309f</code></a>\nAdd some assertions about malformed paths.</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/2d015c22348fab46ca765339f55f84fe9d6e8115\"><code>2d015c2</code></a>\nMerge <a\nhref=\"https://github.com/jaraco/skeleton\">https://github.com/jaraco/skeleton</a></li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/a595a0fad054cd20b69d3e954c99174e3a548938\"><code>a595a0f</code></a>\nRename extras to align with core metadata spec.</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/608f90a6e74919501577a1312dc5c7d8e1d391d7\"><code>608f90a</code></a>\nFinalize</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/3a22d724acf874111b43f87f7110225122ec3de5\"><code>3a22d72</code></a>\nMerge pull request <a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/118\">#118</a> from\njaraco/feature/is-symlink</li>\n<li>Additional commits viewable in <a\nhref=\"https://github.com/jaraco/zipp/compare/v0.6.0...v3.19.1\">compare\nview</a></li>\n</ul>\n</details>\n<br />\n\n\n[![Dependabot compatibility\nscore](https://dependabot-badges.githubapp.com/badges/compatibility_score?dependency-name=zipp&package-manager=pip&previous-version=0.6.0&new-version=3.19.1)](https://docs.github.com/en/github/managing-security-vulnerabilities/about-dependabot-security-updates#about-compatibility-scores)\n\nDependabot will resolve any conflicts with this PR as long as you don't\nalter it yourself. You can also trigger a rebase manually by commenting\nsomeone@example.invalid rebase`.\n\n[//]: # (dependabot-automerge-start)\n[//]: # (dependabot-automerge-end)\n\n---\n\n<details>\n<summary>Dependabot commands and options</summary>\n<br />\n\nYou can trigger Dependabot actions by commenting on this PR:\n- someone@example.invalid rebase` will rebase this PR\n- someone@example.invalid recreate` will recreate this PR, overwriting any edits\nthat have been made to it\n- someone@example.invalid merge` will merge this PR after your CI passes on it\n- someone@example.invalid squash and merge` will squash and merge this PR after\nyour CI passes on it\n- someone@example.invalid cancel merge` will cancel a previously requested merge\nand block automerging\n- someone@example.invalid reopen` will reopen this PR if it is closed\n- someone@example.invalid close` will close this PR and stop Dependabot recreating\nit. You can achieve the same result by closing it manually\n- someone@example.invalid show <dependency name> ignore conditions` will show all\nof the ignore conditions of the specified dependency\n- someone@example.invalid ignore this major version` will close this PR and stop\nDependabot creating any more for this major version (unless you reopen\nthe PR or upgrade to it yourself)\n- someone@example.invalid ignore this minor version` will close this PR and stop\nDependabot creating any more for this minor version (unless you reopen\nthe PR or upgrade to it yourself)\n- someone@example.invalid ignore this dependency` will close this PR and stop\nDependabot creating any more for this dependency (unless you reopen the\nPR or upgrade to it yourself)\nYou can disable automated security fix PRs for this repo from the\n[Security Alerts\npage](https://github.com/benchmark-action/github-action-benchmark/network/alerts).\n\n</details>\n\nSigned-off-by: dependabot[bot] someone@example.invalid\nCo-authored-by: dependabot[bot] someone@example.invalid",
     "timestamp": "2026-03-26T21:47:06+01:00",
     "tree_id": "6a27e3e787599abe11fe064453ceaa682e95c153",
     "url": "https://github.com/benchmark-action/github-action-benchmark/commit/b0e7057f76614dd5c0355257b2b77ee514f3e77b"
    },
    "date": 1774558051628,
    "tool": "pytest",
    "benches": [
     {
      "name": "bench.py::test_fib_10",
      "value": 70848.94520219282,
      "unit": "iter/sec",
      "range": "stddev: 0.000002938545720173083",
      "extra": "mean: 14.114536174760856 usec\nrounds: 34513"
     },
     {
      "name": "bench.py::test_fib_20",
      "value": 623.4112781810163,
      "unit": "iter/sec",
      "range": "stddev: 0.00014137581457961343",
      "extra": "mean: 1.6040774926590848 msec\nrounds: 613"
     }
    ]
   },
   {
    "commit": {
     "author": {
      "email": "userbc9bb4@example.invalid",
      "name": "userbc9bb4",
      "username": "userbc9bb4"
     },
     "committer": {
      "email": "userbc9bb4@example.invalid",
      "name": "userbc9bb4",
      "username": "userbc9bb4"
     },
     "distinct": true,
     "id": "c38cce98215cf75e178ecd5a0c1a1ab215e93006",
     "message": "release v1.22.0",
     "timestamp": "2026-03-31T06:53:51+02:00",
     "tree_id": "bcd62a1fb1374f67221a37001260ca831840ac40",
     "url": "https://github.com/benchmark-action/github-action-benchmark/commit/c38cce98215cf75e178ecd5a0c1a1ab215e93006"
    },
    "date": 1774932868914,
    "tool": "pytest",
    "benches": [
     {
      "name": "bench.py::test_fib_10",
      "value": 76327.03241590009,
      "unit": "iter/sec",
      "range": "stddev: 0.0000012571315525798022",
      "extra": "mean: 13.101518143022743 usec\nrounds: 29984"
     },
     {
      "name": "bench.py::test_fib_20",
      "value": 604.5755406814991,
      "unit": "iter/sec",
      "range": "stddev: 0.000018037065721222928",
      "extra": "mean: 1.6540530218486251 msec\nrounds: 595"
     }
    ]
   }
  ],
  "C++ Benchmark": [
   {
    "commit": {
     "author": {
      "email": "user45e8e8@example.invalid",
      "name": "user45e8e8",
      "username": "user45e8e8"
     },
     "committer": {
      "email": "usere842f3@example.invalid",
      "name": "usere842f3",
      "username": "usere842f3"
     },
     "distinct": true,
     "id": "6dc89aaa69de1820b21d94a8c220c8fbbd912d28",
     "message": "chore(deps-dev): bump braces from 3.0.2 to 3.0.3 (#251)\n\nBumps [braces](https://github.com/micromatch/braces) from 3.0.2 to\n3.0.3.\n<details>\n<summary>Commits</summary>\n<ul>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/74b2db2938fad48a2ea54a9c8bf27a37a62c350d\"><code>74b2db2</code></a>\n3.0.3</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/88f1429a0f47e1dd3813de35211fc97ffda27f9e\"><code>88f1429</code></a>\nupdate eslint. lint, fix unit tests.</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/415d660c3002d1ab7e63dbf490c9851da80596ff\"><code>415d660</code></a>\nSnyk js braces 6838727 (<a\nhref=\"https://redirect.github.com/micromatch/braces/issues/40\">#40</a>)</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/190510f79db1adf21d92798b0bb6fccc1f72c9d6\"><code>190510f</code></a>\nfix tests, skip 1 test in test/braces.expand</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/716eb9f12d820b145a831ad678618731927e8856\"><code>716eb9f</code></a>\nreadme bump</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/a5851e57f45c3431a94d83fc565754bc10f5bbc3\"><code>a5851e5</code></a>\nMerge pull request <a\nhref=\"https://redirect.github.com/micromatch/braces/issues/37\">#37</a>\nfrom coderaiser/fix/vulnerability</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/2092bd1fb108d2c59bd62e243b70ad98db961538\"><code>2092bd1</code></a>\nfeature: braces: add maxSymbols (<a\nhref=\"https://github.com/micromatch/braces/issues/\">https://github.com/micromatch/braces/issues/</a>...</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/9f5b4cf47329351bcb64287223ffb6ecc9a5e6d3\"><code>9f5b4cf</code></a>\nfix: vulnerability (<a\nhref=\"https://security.snyk.io/vuln/SNYK-JS-BRACES-6838727\">https://security.snyk.io/vuln/SNYK-JS-BRACES-6838727</a>)</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/98414f9f1fabe021736e26836d8306d5de747e0d\"><code>98414f9</code></a>\nremove funding file</li>\n<li><a\nhref=\"https://github.com/micromatch/braces/commit/665ab5d561c017a38ba7aafd92cc6655b91d8c14\"><code>665ab5d</code></a>\nupdate keepEscaping doc (<a\nhref=\"https://redirect.github.com/micromatch/braces/issues/27\">#27</a>)</li>\n<li>Additional commits viewable in <a\nhref=\"https://github.com/micromatch/braces/compare/3.0.2...3.0.3\">compare\nview</a></li>\n</ul>\n</details>\n<br />\n\n\n[![Dependabot compatibility\nscore](https://dependabot-badges.githubapp.com/badges/compatibility_score?dependency-name=braces&package-manager=npm_and_yarn&previous-version=3.0.2&new-version=3.0.3)](https://docs.github.com/en/github/managing-security-vulnerabilities/about-dependabot-security-updates#about-compatibility-scores)\n\nDependabot will resolve any conflicts with this PR as long as you don't\nalter it yourself. You can also trigger a rebase manually by commenting\nsomeone@example.invalid rebase`.\n\n[//]: # (dependabot-automerge-start)\n[//]: # (dependabot-automerge-end)\n\n---\n\n<details>\n<summary>Dependabot commands and options</summary>\n<br />\n\nYou can trigger Dependabot actions by commenting on this PR:\n- someone@example.invalid rebase` will rebase this PR\n- someone@example.invalid recreate` will recreate this PR, overwriting any edits\nthat have been made to it\n- someone@example.invalid merge` will merge this PR after your CI passes on it\n- someone@example.invalid squash and merge` will squash and merge this PR after\nyour CI passes on it\n- someone@example.invalid cancel merge` will cancel a previously requested merge\nand block automerging\n- someone@example.invalid reopen` will reopen this PR if it is closed\n- someone@example.invalid close` will close this PR and stop Dependabot recreating\nit. You can achieve the same result by closing it manually\n- someone@example.invalid show <dependency name> ignore conditions` will show all\nof the ignore conditions of the specified dependency\n- someone@example.invalid ignore this major version` will close this PR and stop\nDependabot creating any more for this major version (unless you reopen\nthe PR or upgrade to it yourself)\n- someone@example.invalid ignore this minor version` will close this PR and stop\nDependabot creating any more for this minor version (unless you reopen\nthe PR or upgrade to it yourself)\n- someone@example.invalid ignore this dependency` will close this PR and stop\nDependabot creating any more for this dependency (unless you reopen the\nPR or upgrade to it yourself)\nYou can disable automated security fix PRs for this repo from the\n[Security Alerts\npage](https://github.com/benchmark-action/github-action-benchmark/network/alerts).\n\n</details>\n\nSigned-off-by: dependabot[bot] someone@example.invalid\nCo-authored-by: dependabot[bot] someone@example.invalid",
     "timestamp": "2026-03-26T21:40:58+01:00",
     "tree_id": "1b5ab7687e4f5249236cfdf443a66502a2d4847e",
     "url": "https://github.com/benchmark-action/github-action-benchmark/commit/6dc89aaa69de1820b21d94a8c220c8fbbd912d28"
    },
    "date": 1774557671274,
    "tool": "googlecpp",
    "benches": [
     {
      "name": "fib_10",
      "value": 177.8900225791332,
      "unit": "ns/iter",
      "extra": "iterations: 3802626\ncpu: 177.8838055596317 ns\nthreads: 1"
     },
     {
      "name": "fib_20",
      "value": 22389.032177585403,
      "unit": "ns/iter",
      "extra": "iterations: 31264\ncpu: 22387.84010363357 ns\nthreads: 1"
     }
    ]
   },
   {
    "commit": {
     "author": {
      "email": "user45e8e8@example.invalid",
      "name": "user45e8e8",
      "username": "user45e8e8"
     },
     "committer": {
      "email": "usere842f3@example.invalid",
      "name": "usere842f3",
      "username": "usere842f3"
     },
     "distinct": true,
     "id": "b0e7057f76614dd5c0355257b2b77ee514f3e77b",
     "message": "chore(deps): bump zipp from 0.6.0 to 3.19.1 in /examples/pytest (#256)\n\nBumps [zipp](https://github.com/jaraco/zipp) from 0.6.0 to 3.19.1.\n<details>\n<summary>Changelog</summary>\n<p><em>Sourced from <a\nhref=\"https://github.com/jaraco/zipp/blob/main/NEWS.rst\">zipp's\nchangelog</a>.</em></p>\n<blockquote>\n<h1>v3.19.1</h1>\n<h2>Bugfixes</h2>\n<ul>\n<li>Improved handling of malformed zip files. (<a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/119\">#119</a>)</li>\n</ul>\n<h1>v3.19.0</h1>\n<h2>Features</h2>\n<ul>\n<li>Implement is_symlink. (<a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/117\">#117</a>)</li>\n</ul>\n<h1>v3.18.2</h1>\n<p>No significant changes.</p>\n<h1>v3.18.1</h1>\n<p>No significant changes.</p>\n<h1>v3.18.0</h1>\n<h2>Features</h2>\n<ul>\n<li>Bypass ZipFile.namelist in glob for better performance. (<a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/106\">#106</a>)</li>\n<li>Refactored glob functionality to support a more generalized solution\nwith support for platform-specific path separators. (<a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/108\">#108</a>)</li>\n</ul>\n<h2>Bugfixes</h2>\n<ul>\n<li>Add special accounting for pypy when computing the stack level for\ntext encoding warnings. (<a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/114\">#114</a>)</li>\n</ul>\n<h1>v3.17.0</h1>\n<p>Features</p>\n<!-- raw HTML omitted -->\n</blockquote>\n<p>... (truncated)</p>\n</details>\n<details>\n<summary>Commits</summary>\n<ul>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/6d1cb72aa55e0536f35d2af128994b5a61ca4c1a\"><code>6d1cb72</code></a>\nFinalize</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/fd604bd34f0343472521a36da1fbd22e793e14fd\"><code>fd604bd</code></a>\nMerge pull request <a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/120\">#120</a> from\njaraco/bugfix/119-malformed-paths</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/c18417ed2953e181728a7dac07bff88a2190abf7\"><code>c18417e</code></a>\nAdd news fragment.</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/58115d2be968644ce71ce6bcc9b79826c82a1806\"><code>58115d2</code></a>\nEmploy SanitizedNames in CompleteDirs. Fixes broken test.</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/564fcc10cdbfdaecdb33688e149827465931c9e0\"><code>564fcc1</code></a>\nAdd SanitizedNames mixin.</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/79a309fe54dc6b7934fb72e9f31bcb58f2e9f547\"><code>79a309f</code></a>\nAdd some assertions about malformed paths.</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/2d015c22348fab46ca765339f55f84fe9d6e8115\"><code>2d015c2</code></a>\nMerge <a\nhref=\"https://github.com/jaraco/skeleton\">https://github.com/jaraco/skeleton</a></li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/a595a0fad054cd20b69d3e954c99174e3a548938\"><code>a595a0f</code></a>\nRename extras to align with core metadata spec.</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/608f90a6e74919501577a1312dc5c7d8e1d391d7\"><code>608f90a</code></a>\nFinalize</li>\n<li><a\nhref=\"https://github.com/jaraco/zipp/commit/3a22d724acf874111b43f87f7110225122ec3de5\"><code>3a22d72</code></a>\nMerge pull request <a\nhref=\"https://redirect.github.com/jaraco/zipp/issues/118\">#118</a> from\njaraco/feature/is-symlink</li>\n<li>Additional commits viewable in <a\nhref=\"https://github.com/jaraco/zipp/compare/v0.6.0...v3.19.1\">compare\nview</a></li>\n</ul>\n</details>\n<br />\n\n\n[![Dependabot compatibility\nscore](https://dependabot-badges.githubapp.com/badges/compatibility_score?dependency-name=zipp&package-manager=pip&previous-version=0.6.0&new-version=3.19.1)](https://docs.github.com/en/github/managing-security-vulnerabilities/about-dependabot-security-updates#about-compatibility-scores)\n\nDependabot will resolve any conflicts with this PR as long as you don't\nalter it yourself. You can also trigger a rebase manually by commenting\nsomeone@example.invalid rebase`.\n\n[//]: # (dependabot-automerge-start)\n[//]: # (dependabot-automerge-end)\n\n---\n\n<details>\n<summary>Dependabot commands and options</summary>\n<br />\n\nYou can trigger Dependabot actions by commenting on this PR:\n- someone@example.invalid rebase` will rebase this PR\n- someone@example.invalid recreate` will recreate this PR, overwriting any edits\nthat have been made to it\n- someone@example.invalid merge` will merge this PR after your CI passes on it\n- someone@example.invalid squash and merge` will squash and merge this PR after\nyour CI passes on it\n- someone@example.invalid cancel merge` will cancel a previously requested merge\nand block automerging\n- someone@example.invalid reopen` will reopen this PR if it is closed\n- someone@example.invalid close` will close this PR and stop Dependabot recreating\nit. You can achieve the same result by closing it manually\n- someone@example.invalid show <dependency name> ignore conditions` will show all\nof the ignore conditions of the specified dependency\n- someone@example.invalid ignore this major version` will close this PR and stop\nDependabot creating any more for this major version (unless you reopen\nthe PR or upgrade to it yourself)\n- someone@example.invalid ignore this minor version` will close this PR and stop\nDependabot creating any more for this minor version (unless you reopen\nthe PR or upgrade to it yourself)\n- someone@example.invalid ignore this dependency` will close this PR and stop\nDependabot creating any more for this dependency (unless you reopen the\nPR or upgrade to it yourself)\nYou can disable automated security fix PRs for this repo from the\n[Security Alerts\npage](https://github.com/benchmark-action/github-action-benchmark/network/alerts).\n\n</details>\n\nSigned-off-by: dependabot[bot] someone@example.invalid\nCo-authored-by: dependabot[bot] someone@example.invalid",
     "timestamp": "2026-03-26T21:47:06+01:00",
     "tree_id": "6a27e3e787599abe11fe064453ceaa682e95c153",
     "url": "https://github.com/benchmark-action/github-action-benchmark/commit/b0e7057f76614dd5c0355257b2b77ee514f3e77b"
    },
    "date": 1774558043063,
    "tool": "googlecpp",
    "benches": [
     {
      "name": "fib_10",
      "value": 181.33170682825207,
      "unit": "ns/iter",
      "extra": "iterations: 3941785\ncpu: 181.24706116645123 ns\nthreads: 1"
     },
     {
      "name": "fib_20",
      "value": 22430.895335854526,
      "unit": "ns/iter",
      "extra": "iterations: 27765\ncpu: 22427.219629029354 ns\nthreads: 1"
     }
    ]
   },
   {
    "commit": {
     "author": {
      "email": "userbc9bb4@example.invalid",
      "name": "userbc9bb4",
      "username": "userbc9bb4"
     },
     "committer": {
      "email": "userbc9bb4@example.invalid",
      "name": "userbc9bb4",
      "username": "userbc9bb4"
     },
     "distinct": true,
     "id": "c38cce98215cf75e178ecd5a0c1a1ab215e93006",
     "message": "release v1.22.0",
     "timestamp": "2026-03-31T06:53:51+02:00",
     "tree_id": "bcd62a1fb1374f67221a37001260ca831840ac40",
     "url": "https://github.com/benchmark-action/github-action-benchmark/commit/c38cce98215cf75e178ecd5a0c1a1ab215e93006"
    },
    "date": 1774932858656,
    "tool": "googlecpp",
    "benches": [
     {
      "name": "fib_10",
      "value": 177.50045639073818,
      "unit": "ns/iter",
      "extra": "iterations: 3946180\ncpu: 177.4838215692138 ns\nthreads: 1"
     },
     {
      "name": "fib_20",
      "value": 23132.19766959291,
      "unit": "ns/iter",
      "extra": "iterations: 31325\ncpu: 23128.78295291301 ns\nthreads: 1"
     }
    ]
   }
  ]
 },
 "repoUrl": "https://github.com/benchmark-action/github-action-benchmark"
}