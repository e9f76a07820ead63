// In tables, names do not break, and lines of code break after an opening parenthesis.
for (const code of document.querySelectorAll("td code, th code")) {
  if (/^\S{1,40}$/.test(code.textContent)) code.classList.add("name");
  else code.innerHTML = code.innerHTML.replaceAll("(", "(<wbr>");
}
