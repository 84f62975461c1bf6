"""Prefixes of links to the same article in other languages, such as [[fr:Lyon]], which old dumps have.

MediaWiki takes a link for one of these if its prefix, in any case, is in the interwiki map as a language of the wiki's
family. They are the codes of `langlist` in Wikimedia's operations/mediawiki-config, and the aliases of its maps of 2004
to 2013. Since 2013 Wikidata has these links, and new languages are in no page.
"""

_CODES = """
    aa ab ace ady af ak als alt am ami an ang anp ar arc ary arz as ast atj av avk awa ay az azb ba ban bar bat-smg bcl
    be be-tarask be-x-old bg bh bi bjn blk bm bn bo bpy br bs btm bug bxr ca cbk-zam cdo ce ceb ch cho chr chy ckb co
    cr crh cs csb cu cv cy da dag de din diq dsb dty dv dz ee el eml en eo es et eu ext fa fat ff fi fiu-vro fj fo fr
    frp frr fur fy ga gag gan gcr gd gl glk gn gom gor got gpe gsw gu guc gur guw gv ha hak haw he hi hif ho hr hsb ht
    hu hy hyw hz ia id ie ig ii ik ilo inh io is it iu ja jam jbo jv ka kaa kab kbd kbp kcg kg ki kj kk kl km kn ko koi
    kr krc ks ksh ku kv kw ky la lad lb lbe lez lfn lg li lij lld lmo ln lo lrc lt ltg lv lzh mad mai map-bms mdf mg mh
    mhr mi min mk ml mn mni mnw mo mr mrj ms mt mus mwl my myv mzn na nah nan nap nds nds-nl ne new ng nia nl nn no nov
    nqo nrm nso nv ny oc olo om or os pa pag pam pap pcd pcm pdc pfl pi pih pl pms pnb pnt ps pt pwn qu rm rmy rn ro
    roa-rup roa-tara ru rue rup rw sa sah sat sc scn sco sd se sg sgs sh shi shn shy si simple sk skr sl sm smn sn so
    sq sr srn ss st stq su sv sw szl szy ta tay tcy te tet tg th ti tk tl tly tn to tpi tr trv ts tt tum tw ty tyv udm
    ug uk ur uz ve vec vep vi vls vo vro wa war wo wuu xal xh xmf yi yo yue za zea zh zh-classical zh-min-nan zh-yue zu
    ann bbc bdr bew btm dga dtp iba igl kge knc kus mos nup rki rsk syl tdd tig tok
    bho cz dk epo jp minnan nb tlh tokipona tp zh-cfr zh-cn zh-tw
"""
PREFIXES = frozenset(_CODES.split())
