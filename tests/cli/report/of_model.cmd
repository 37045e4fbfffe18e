report new_family.json --output page.html
