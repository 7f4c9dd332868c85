<?php
// What php_fpm.py asks for: a feed is built, written as text, parsed and searched. libxml2 takes its memory by malloc;
// PHP's own values lie in its own arena, which it maps by itself.
$items = (int)(explode('=', $_SERVER['QUERY_STRING'])[1] ?? 100);
$feed = new SimpleXMLElement('<channel/>');
for ($i = 0; $i < $items; $i++) {
    $item = $feed->addChild('item');
    $item->addAttribute('id', (string)$i);
    $item->addChild('title', "Item $i");
    $item->addChild('text', str_repeat('word ', ($i * 37) % 60));
}
$read = simplexml_load_string($feed->asXML());
echo count($read->xpath('//item[@id mod 7 = 0]/title')), " found\n";
